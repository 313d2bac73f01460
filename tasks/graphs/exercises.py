"""Exercises on worked solutions: restore the order of their steps, or fill in hidden values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Episode, Prompt
from tasks.checks import final_line
from tasks.generated import ask_user
from tasks.graphs.data import Graph
from tasks.graphs.task import Graphs, Problem, write_solution
from tasks.graphs.verify import judge_steps
from tasks.graphs.wording import write_question

_NUMBERS = re.compile(r"(?:0|[1-9][0-9]{0,3})(?: (?:0|[1-9][0-9]{0,3})){0,25}")


@dataclass(frozen=True)
class Exercise(Problem):
    """A problem, the order in which its steps are shown, and the steps whose values are hidden."""

    shown: tuple[int, ...] = ()
    hidden: tuple[int, ...] = ()


@dataclass(frozen=True)
class GraphSteps(Graphs):
    """Self-supervised exercises on the solutions of `Graphs`: "2 0 1" restores the order, "5 8" fills in values.

    order: every order is right in which each step reads what earlier ones define and the last one answers the question.
    Source: Wang et al., "Masked-and-Reordered Self-Supervision for Reinforcement Learning from Verifiable Rewards",
    arXiv 2511.17473.

    Args:
        exercise: "order" or "fill".
        gaps: hidden values of "fill", at most the fewest quantities of `depth`.
    """

    depth: Sequence[int] = (3, 5)
    exercise: str = "order"
    gaps: int = 2

    name = "graph_steps"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exercise not in ("order", "fill"):
            raise ValueError(f"task {self.name!r}: exercise must be order or fill, got {self.exercise!r}")
        if self.depth[0] < 2 or not 1 <= self.gaps <= self.depth[0]:
            raise ValueError(
                f"task {self.name!r}: needs depth of 2 or more and 1 <= gaps <= {self.depth[0]}, "
                f"got {list(self.depth)} and {self.gaps}"
            )

    def draw(self, rng: np.random.Generator) -> Exercise:
        problem = super().draw(rng)
        count = len(problem.graph.ancestors())
        permutation = tuple(int(i) for i in rng.permutation(count))
        hidden = tuple(sorted(int(i) for i in rng.permutation(count)[: self.gaps]))
        return Exercise(problem.graph, problem.order, permutation, hidden)

    def write_prompt(self, problem: Problem, key: str) -> Prompt:
        assert isinstance(problem, Exercise)
        graph = problem.graph
        steps = write_solution(graph, self.modulus)
        question = write_question(graph, list(problem.order), self.wording, self.modulus).splitlines()
        if self.exercise == "order":
            lines = [f"{number}: {steps[i]}" for number, i in enumerate(problem.shown)]
            answer = [problem.shown.index(i) for i in range(len(steps))]
        else:
            lines = [f"{s.rpartition('=')[0]}=_" if i in problem.hidden else s for i, s in enumerate(steps)]
            answer = [int(steps[i].rpartition("=")[2]) for i in problem.hidden]
        info = {"graph": graph, "steps": [steps[i] for i in problem.shown]}
        return Prompt(key, ask_user("\n".join([*question, *lines])), answer=answer, info=info)

    def score(self, episode: Episode) -> dict[str, float]:
        return self.verify(self.read_answer(episode) or "", episode.prompt)

    def score_names(self, prompt: Prompt) -> tuple[str, ...]:
        return ("exact", "places", "format")

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: a right order, or all hidden values; places: share of the places of the expert's answer that are
        equal; format: as many numbers as the expert's answer has.
        """
        numbers, right = read_numbers(final_line(answer)), prompt.answer
        if len(numbers) != len(right):
            return {"exact": 0.0, "places": 0.0, "format": 0.0}
        places = sum(a == b for a, b in zip(numbers, right)) / len(right)
        exact = numbers == right
        if self.exercise == "order":
            exact = is_order(numbers, prompt.info["steps"], prompt.info["graph"], self.modulus)
        return {"exact": float(exact), "places": 1.0 if exact else places, "format": 1.0}

    def demonstrate(self, index: int) -> str:
        return self.write_answer(" ".join(map(str, self[index].answer)))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        count = len(prompt.answer)
        numbers = rng.permutation(count) if self.exercise == "order" else rng.integers(self.modulus, size=count)
        return self.write_answer(" ".join(map(str, numbers)))


def read_numbers(text: str) -> list[int]:
    """Read numbers with single spaces between them; [] for any other text."""
    return list(map(int, text.split(" "))) if _NUMBERS.fullmatch(text) else []


def is_order(order: Sequence[int], steps: Sequence[str], graph: Graph, modulus: int) -> bool:
    """Whether an order of the shown steps has all of them, each after those that it reads, the answer last."""
    if sorted(order) != list(range(len(steps))):
        return False
    lines = [steps[i] for i in order]
    return set(judge_steps(lines, graph, modulus)) == {"right"} and lines[-1][0] == graph.asked
