"""Grounding: the box of a described object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_interval
from mmrl.core.types import Prompt
from mmrl.rewards.boxes import area, giou, iou, parse_box
from tasks.checks import final_line
from tasks.scenes.coordinates import CoordinateTask
from tasks.scenes.task import SceneProblem, find_target

ABSENT = "none"
MAX_AREA = 4.0  # times the object's; such a box has an IoU of 1/4 at most, but (GIoU + 1) / 2 would pay it over 1/2


@dataclass(frozen=True, kw_only=True)
class Grounding(CoordinateTask):
    """The box of the described object as "x1 y1 x2 y2", or "none" where it is absent.

    Args:
        absent: probability that no object fits the description.
        threshold: IoU from which a box counts as exact.
    """

    absent: float = 0.0
    threshold: float = 0.5
    distractors: Sequence[int] = (1, 3)
    question: str = "Box of the {}?"

    name = "scenes_grounding"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval(f"task {self.name!r}:", "[0, 1)", absent=self.absent)
        check_interval(f"task {self.name!r}:", "(0, 1]", threshold=self.threshold)
        if self.absent and not self.distractors[0]:
            raise ValueError(f"task {self.name!r}: with absent > 0 set distractors to at least [1, 1]")

    def ask(self, rng: np.random.Generator) -> SceneProblem | None:
        present = rng.random() >= self.absent
        target, kinds = self.draw_kinds(rng, int(present))
        scene = self.build_scene(rng, kinds)
        if scene is None:
            return None
        box = self.to_units(find_target(scene).box) if present else None
        text = ABSENT if box is None else " ".join(map(str, box))
        return SceneProblem(scene, self.question.replace("{}", self.phrase(target)), text, box)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """Score the final line: one box inside the image, or "none".

        exact: IoU of at least `threshold`; iou; giou: (GIoU + 1) / 2; format. A box of more than four times the
        object's area scores 0, and so does a box where the object is absent, or "none" where it is there.
        Source: (GIoU + 1) / 2 as in VLA-R1, arXiv 2510.01623.
        """
        final, truth = final_line(answer), prompt.answer
        box = parse_box(final, self.limit)
        well_formed = float(box is not None or final == ABSENT)
        if truth is None or box is None:
            right = float(truth is None and final == ABSENT)
            return {"exact": right, "iou": right, "giou": right, "format": well_formed}
        if area(box) > MAX_AREA * area(truth):
            return {"exact": 0.0, "iou": 0.0, "giou": 0.0, "format": well_formed}
        overlap = iou(box, truth)
        return {
            "exact": float(overlap >= self.threshold),
            "iou": overlap,
            "giou": (giou(box, truth) + 1) / 2,
            "format": well_formed,
        }
