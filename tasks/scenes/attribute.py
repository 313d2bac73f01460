"""Attributes: "Which colour is the circle?"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Prompt
from tasks.checks import final_line
from tasks.scenes.task import SceneProblem, SceneTask, find_target

ASK = ("colour", "shape")


@dataclass(frozen=True, kw_only=True)
class Attribute(SceneTask):
    """The colour or the shape of the one object that fits a description.

    Args:
        ask_for: colour or shape; describe must not name it.
    """

    ask_for: str = "colour"
    describe: str = "shape"
    distractors: Sequence[int] = (1, 3)
    question: str = "Which {attribute} is the {}?"

    name = "scenes_attribute"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ask_for not in ASK or self.describe in (self.ask_for, "both"):
            raise ValueError(
                f"task {self.name!r}: ask_for must be one of {ASK} and describe any or the other one, got "
                f"{self.ask_for!r} and {self.describe!r}"
            )

    def ask(self, rng: np.random.Generator) -> SceneProblem | None:
        target, kinds = self.draw_kinds(rng, 1)
        scene = self.build_scene(rng, kinds)
        if scene is None:
            return None
        question = self.question.replace("{attribute}", self.ask_for).replace("{}", self.phrase(target))
        text = getattr(find_target(scene), self.ask_for)
        return SceneProblem(scene, question, text, text)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """format: 1 if the final line is one of the words that are drawn; exact: 1 if it is the right one."""
        final = final_line(answer)
        choices = self.colours if self.ask_for == "colour" else self.shapes
        return {"exact": float(final == prompt.answer), "format": float(final in choices)}
