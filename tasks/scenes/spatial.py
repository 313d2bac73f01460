"""Spatial relations: where one object is, seen from another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Prompt
from tasks.checks import final_line
from tasks.scenes.scene import Thing
from tasks.scenes.task import SceneProblem, SceneTask

RELATIONS = ("left", "right", "above", "below")
RATIO = 2  # the offset along the named axis is at least twice the other one, so that one relation is right


@dataclass(frozen=True, kw_only=True)
class Spatial(SceneTask):
    """Whether an object is left, right, above or below of another one, by their centres."""

    distractors: Sequence[int] = (1, 3)
    question: str = "Where is the {} from the {}: left, right, above or below?"

    name = "scenes_spatial"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.question.count("{}") != 2 or not self.distractors[0]:
            raise ValueError(
                f"task {self.name!r}: question must hold {{}} twice and distractors start at 1 or more, got "
                f"{self.question!r} and {list(self.distractors)}"
            )

    def ask(self, rng: np.random.Generator) -> SceneProblem | None:
        target, kinds = self.draw_kinds(rng, 1)
        other = kinds[1]
        if [self.key(kind) for kind in kinds].count(self.key(other)) > 1:
            return None  # the second description would fit two objects
        scene = self.build_scene(rng, kinds)
        relation = None if scene is None else relate(scene.shapes[0], scene.shapes[1])
        if scene is None or relation is None:
            return None
        question = self.question.replace("{}", self.phrase(target), 1).replace("{}", self.phrase(other), 1)
        return SceneProblem(scene, question, relation, relation)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """format: 1 if the final line is one of the four words; exact: 1 if it is the right one."""
        final = final_line(answer)
        return {"exact": float(final == prompt.answer), "format": float(final in RELATIONS)}


def relate(shape: Thing, other: Thing) -> str | None:
    """Name where the centre of a shape is from that of another; None if no axis has twice the offset of the other."""
    across, down = (sum(shape.box[i::2]) - sum(other.box[i::2]) for i in (0, 1))
    if abs(across) >= RATIO * abs(down) and across:
        return "left" if across < 0 else "right"
    if abs(down) >= RATIO * abs(across) and down:
        return "above" if down < 0 else "below"
    return None
