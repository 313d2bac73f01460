"""Image classification with a list of classes, some of which are never trained on: "red circle, blue square?"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.checks import check_index, final_line
from tasks.scenes.task import Kind, SceneProblem, SceneTask

PARTS = ("base", "new", "all")
_DRAWS = 2000  # of one image until it belongs to the split


@dataclass(frozen=True, kw_only=True)
class Classification(SceneTask):
    """One object, whose class is its colour and shape; the prompt lists the classes of its part.

    Every second class in the order of shapes and colours is new: shape i in colour j is new where i + j is odd, so that
    each word is seen in training, with other words. Problem i has class number i modulo the number of classes: with
    count = shots * classes each class has the same number of training images. info["task"] is the part of a prompt's
    class. Source: CLS-RL, 2025, base-to-new generalisation, arXiv:2503.16188.

    Args:
        part: "base", "new", or "all" for problems of both, each with the list of its own part.
        question: {classes} stands for the list.
    """

    shapes: Sequence[str] = ("circle", "square", "triangle")
    colours: Sequence[str] = ("red", "blue")
    distractors: Sequence[int] = (0, 0)
    part: str = "base"
    question: str = "{classes}?"

    name = "scenes_classification"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.part not in PARTS or self.question.count("{classes}") != 1 or tuple(self.distractors) != (0, 0):
            raise ValueError(
                f"task {self.name!r}: part must be one of {PARTS}, question hold {{classes}} once, and distractors be "
                f"[0, 0], got {self.part!r}, {self.question!r} and {list(self.distractors)}"
            )
        if len(self.list_classes("base")) < 2 or len(self.list_classes("new")) < 2:
            raise ValueError(f"task {self.name!r}: each part needs two classes; give at least four shapes and colours")

    def list_classes(self, part: str) -> list[Kind]:
        """List the classes of a part in the order of shapes and colours."""
        numbered = [(i + j, (s, c)) for i, s in enumerate(self.shapes) for j, c in enumerate(self.colours)]
        return [kind for number, kind in numbered if part == "all" or (number % 2 == 1) == (part == "new")]

    def problem(self, index: int) -> SceneProblem:
        check_index(self, index)
        classes = self.list_classes(self.part)
        kind = classes[index % len(classes)]
        rng = derive_rng(self.name, self.split, self.seed, index)
        for _ in range(_DRAWS):
            problem = self._show(rng, kind)
            if problem is not None and self.split_of(problem) == self.split:
                return problem
        raise ValueError(f"task {self.name!r}: too few distinct images of {kind}; widen sides or size")

    def ask(self, rng: np.random.Generator) -> SceneProblem | None:
        classes = self.list_classes(self.part)
        return self._show(rng, classes[int(rng.integers(len(classes)))])

    def _show(self, rng: np.random.Generator, kind: Kind) -> SceneProblem | None:
        """Draw an image of a class, and list the classes of its part; None if it does not fit."""
        scene = self.build_scene(rng, [kind])
        if scene is None:
            return None
        names = ", ".join(name_class(each) for each in self.list_classes(self._part_of(kind)))
        return SceneProblem(scene, self.question.replace("{classes}", names), name_class(kind), name_class(kind))

    def _part_of(self, kind: Kind) -> str:
        return "new" if kind in self.list_classes("new") else "base"

    def write_prompt(self, problem: SceneProblem, key: str) -> Prompt:
        prompt = super().write_prompt(problem, key)
        colour, _, shape = problem.text.partition(" ")
        return replace(prompt, info={**prompt.info, "task": self._part_of((shape, colour))})

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: 1 if the final line is the class; format: 1 if it is a class of either part."""
        final = final_line(answer)
        return {"exact": float(final == prompt.answer), "format": float(final in map(name_class, self.kinds))}

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        classes = self.list_classes(prompt.info["task"])
        return self.write_answer(name_class(classes[int(rng.integers(len(classes)))]))


def name_class(kind: Kind) -> str:
    """Name a class: red circle."""
    shape, colour = kind
    return f"{colour} {shape}"
