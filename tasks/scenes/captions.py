"""Counting with thoughts: a caption of the image, an explanation, and the answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.scenes.counting import Counting
from tasks.scenes.task import SceneProblem


@dataclass(frozen=True, kw_only=True)
class CaptionedCounting(Counting):
    """Counting whose demonstrations are "<think>r b r</think>2 red squares<answer>2</answer>".

    The thought is a caption: the first letters of the colours of all objects, row by row from the top and from the left
    in a row. The explanation repeats the count and the description.

    Args: as of Counting; the colours begin with different letters, and answers stand in tags.
    """

    extract: str | dict[str, str] | None = "tags"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len({colour[0] for colour in self.colours}) < len(self.colours):
            raise ValueError(f"task {self.name!r}: captions need colours of different first letters: {self.colours}")

    def ask(self, rng: np.random.Generator) -> SceneProblem | None:
        problem = super().ask(rng)
        if problem is None:
            return None
        placed = sorted(problem.scene.shapes, key=lambda shape: (shape.box[1], shape.box[0]))
        caption = " ".join(shape.colour[0] for shape in placed)
        description = problem.question.removesuffix("?")
        text = f"<think>{caption}</think>{problem.text} {description}"
        return SceneProblem(problem.scene, problem.question, text, problem.answer)

    def demonstrate(self, index: int) -> str:
        problem = self.problem(index)
        return problem.text + self.write_answer(str(problem.answer))
