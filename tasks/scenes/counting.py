"""Counting: "How many red circles are there?"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Prompt
from tasks.checks import check_range, final_line
from tasks.scenes.task import SceneProblem, SceneTask

NUMBER = re.compile(r"0|[1-9][0-9]?")


@dataclass(frozen=True, kw_only=True)
class Counting(SceneTask):
    """How many objects of a description there are. Each number is equally likely.

    Args:
        objects: fewest and most objects of the description.
    """

    objects: Sequence[int] = (1, 5)
    sides: Sequence[float] = (0.18, 0.28)
    distractors: Sequence[int] = (0, 0)
    describe: str = "any"
    question: str = "How many {} are there?"

    name = "scenes_counting"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "objects", tuple(self.objects))
        check_range(self.name, "objects", self.objects, 0)

    def ask(self, rng: np.random.Generator) -> SceneProblem | None:
        count = int(rng.integers(self.objects[0], self.objects[1], endpoint=True))
        target, kinds = self.draw_kinds(rng, count)
        scene = self.build_scene(rng, kinds)
        if scene is None:
            return None
        return SceneProblem(scene, self.question.replace("{}", self.phrase(target, many=True)), str(count), count)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """format: 1 if the final line is one number of at most two digits; exact: 1 if it is the right one."""
        final = final_line(answer)
        well_formed = NUMBER.fullmatch(final) is not None
        return {"exact": float(well_formed and final == str(prompt.answer)), "format": float(well_formed)}
