"""Detection: the boxes of all objects of a description."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Prompt
from mmrl.rewards.boxes import average_precision, count_factor, mean_average_precision, parse_box
from tasks.checks import check_range, final_line
from tasks.scenes.coordinates import CoordinateTask
from tasks.scenes.task import SceneProblem

MOST = 32  # boxes that are read; an answer with more scores 0


@dataclass(frozen=True, kw_only=True)
class Detection(CoordinateTask):
    """The boxes of all described objects, "x1 y1 x2 y2; x1 y1 x2 y2", in any order; "none" if there are none.

    Args:
        objects: fewest and most objects of the description.
    """

    objects: Sequence[int] = (1, 3)
    question: str = "Boxes of all {}?"

    name = "scenes_detection"

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
        boxes = sorted(self.to_units(shape.box) for shape in scene.shapes[:count])
        text = "; ".join(" ".join(map(str, box)) for box in boxes) or "none"
        return SceneProblem(scene, self.question.replace("{}", self.phrase(target, many=True)), text, tuple(boxes))

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """Score the boxes of the final line.

        detection: VLM-R1's reward min(1, true boxes / given boxes) times mean average precision; map50: average
        precision at IoU 0.5 times the same factor; exact: map50 is 1; format. Three measures of padding, which are no
        rewards: map is mean average precision without the factor, which further boxes never lower, count_factor is the
        factor alone, and padding is the fraction of the given boxes that exceed the number of true ones.
        """
        final, truth = final_line(answer), prompt.answer
        parts = [] if final == "none" else final.split("; ", MOST)
        read = [parse_box(part, self.limit) for part in parts]
        boxes = [box for box in read if box is not None]
        if len(boxes) != len(parts) or len(parts) > MOST:
            return dict.fromkeys(("exact", "detection", "map50", "format", "map", "count_factor", "padding"), 0.0)
        factor, precision = count_factor(len(boxes), len(truth)), mean_average_precision(boxes, truth)
        coarse = factor * average_precision(boxes, truth)
        return {
            "exact": float(coarse >= 1 - 1e-9),
            "detection": factor * precision,
            "map50": coarse,
            "format": 1.0,
            "map": precision,
            "count_factor": factor,
            "padding": 1 - factor,
        }
