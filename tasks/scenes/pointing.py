"""Pointing: a point inside the box of a described object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Prompt
from mmrl.rewards.boxes import centre, contains, parse_numbers
from tasks.checks import final_line
from tasks.scenes.coordinates import CoordinateTask
from tasks.scenes.task import SceneProblem, find_target


@dataclass(frozen=True, kw_only=True)
class Pointing(CoordinateTask):
    """A point "x y" inside the box of the described object; the expert points at its middle."""

    distractors: Sequence[int] = (1, 3)
    question: str = "Point at the {}."

    name = "scenes_pointing"

    def ask(self, rng: np.random.Generator) -> SceneProblem | None:
        target, kinds = self.draw_kinds(rng, 1)
        scene = self.build_scene(rng, kinds)
        if scene is None:
            return None
        box = self.to_units(find_target(scene).box)
        text = " ".join(str(int(edge)) for edge in centre(box))
        return SceneProblem(scene, self.question.replace("{}", self.phrase(target)), text, box)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: 1 if the final line is one point and it lies in the box; format: 1 if it is one point."""
        point = parse_numbers(final_line(answer), 2, self.limit)
        hit = point is not None and contains(prompt.answer, point)
        return {"exact": float(hit), "format": float(point is not None)}
