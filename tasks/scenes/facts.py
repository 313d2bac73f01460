"""Counting with thoughts that state the facts of the image: colour and place of every object."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mmrl.core.types import Prompt
from tasks.scenes.captions import CaptionedCounting
from tasks.scenes.counting import Counting
from tasks.scenes.scene import Painted
from tasks.scenes.task import SceneProblem


@dataclass(frozen=True, kw_only=True)
class FactCounting(CaptionedCounting):
    """Counting whose demonstrations are "<think>r1 b5 r9</think><answer>2</answer>", and whose facts are those words.

    A fact is the first letter of an object's colour and the number of the ninth of the image that its centre lies in,
    row by row from the top left, in the order of these numbers.

    Args: as of CaptionedCounting.
    """

    def ask(self, rng: np.random.Generator) -> SceneProblem | None:
        problem = Counting.ask(self, rng)
        return problem and replace(problem, text=f"<think>{' '.join(self.facts(problem.scene))}</think>")

    def write_prompt(self, problem: SceneProblem, key: str) -> Prompt:
        prompt = super().write_prompt(problem, key)
        return replace(prompt, info={**prompt.info, "facts": self.facts(problem.scene)})

    def facts(self, scene: Painted) -> tuple[str, ...]:
        """List the facts of a scene; two objects of one colour in one ninth are one fact."""
        words = set()
        for shape in scene.shapes:
            column, row = (min(2, (shape.box[i] + shape.box[2 + i]) * 3 // (2 * self.size)) for i in (0, 1))
            words.add(f"{shape.colour[0]}{3 * row + column + 1}")
        return tuple(sorted(words, key=lambda word: (word[1], word[0])))
