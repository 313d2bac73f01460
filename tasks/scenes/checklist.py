"""Counting with a checklist of what the image shows: the number of objects of each colour."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mmrl.core.types import Prompt
from tasks.generated import ask_about_images
from tasks.scenes.counting import Counting
from tasks.scenes.task import SceneProblem


@dataclass(frozen=True, kw_only=True)
class CheckedCounting(Counting):
    """Counting whose rows have a checklist: for each colour, how many objects have it.

    Args: as of Counting.
    """

    def write_prompt(self, problem: SceneProblem, key: str) -> Prompt:
        prompt = super().write_prompt(problem, key)
        return replace(prompt, info={**prompt.info, "checklist": self.list_checks(problem)})

    def list_checks(self, problem: SceneProblem) -> list[dict[str, str]]:
        """List the questions about a scene with their answers, as in {question: red:, answer: 2}."""
        counts = [sum(shape.colour == colour for shape in problem.scene.shapes) for colour in self.colours]
        return [{"question": f"{c}:", "answer": str(number)} for c, number in zip(self.colours, counts)]


@dataclass(frozen=True, kw_only=True)
class Checklists(CheckedCounting):
    """The checklists alone, whose answers are a line each: what the start of a policy is taught beside counting.

    Args: as of Counting.
    """

    def write_prompt(self, problem: SceneProblem, key: str) -> Prompt:
        prompt = super().write_prompt(problem, key)
        questions = "\n".join(check["question"] for check in prompt.info["checklist"])
        return replace(prompt, messages=ask_about_images(questions), answer=self._write(problem))

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: every line is right; format: as many lines as questions."""
        lines = [line.strip() for line in answer.strip().split("\n")]
        right = str(prompt.answer).split("\n")
        return {"exact": float(lines == right), "format": float(len(lines) == len(right))}

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self._write(self.problem(index)))

    def _write(self, problem: SceneProblem) -> str:
        return "\n".join(check["answer"] for check in self.list_checks(problem))
