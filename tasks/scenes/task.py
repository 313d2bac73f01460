"""Base of the questions about rendered scenes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmrl.core.errors import check_interval
from mmrl.core.types import Prompt
from tasks.checks import check_range
from tasks.generated import GeneratedTask, to_tuples
from tasks.scenes.scene import Painted, Painter, Scene, Thing, list_facts, place_shapes
from tasks.scenes.shapes import BACKGROUNDS, COLOURS, SHAPES, SMALLEST, plural

DESCRIBE = ("any", "shape", "colour", "both")
Kind = tuple[str, str]
"""Shape and colour."""


@dataclass(frozen=True)
class SceneProblem:
    """A scene, a question about it, the expert's answer in words, and the value that a verifier reads."""

    scene: Painted
    question: str
    text: str
    answer: Any


@dataclass(frozen=True, kw_only=True)
class SceneTask(GeneratedTask):
    """Question about coloured shapes on a background. No scene is in both splits, whatever is asked.

    Args:
        size: side of the image in pixels.
        shapes: names of shapes that are drawn.
        colours: names of colours that are drawn.
        background: white, grey or black.
        sides: smallest and largest side of an object as a fraction of the image's.
        distractors: fewest and most objects that the question does not describe.
        describe: how the question names objects: any ("shape"), shape ("circle"), colour ("red shape") or both.
        max_overlap: most that two boxes share, as a fraction of the smaller one; later objects cover earlier ones.
        question: what is asked; {} stands for the description.
        painter: draws other scenes than flat shapes on a background, of other shapes; None draws those.
    """

    size: int = 64
    shapes: Sequence[str] = SHAPES[:5]
    colours: Sequence[str] = ("red", "green", "blue", "yellow", "purple")
    background: str = "white"
    sides: Sequence[float] = (0.2, 0.35)
    distractors: Sequence[int] = (0, 2)
    describe: str = "both"
    max_overlap: float = 0.0
    question: str = "{}"
    painter: Painter | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "shapes", "colours", "sides", "distractors")
        options = (SHAPES, tuple(COLOURS)) if self.painter is None else (self.painter.shapes, self.painter.colours)
        for key, choices in zip(("shapes", "colours"), options):
            names = getattr(self, key)
            if not names or len(set(names)) < len(names) or not set(names) <= set(choices):
                raise ValueError(f"task {self.name!r}: {key} must be distinct ones of {choices}, got {names}")
        if self.background not in BACKGROUNDS or self.describe not in DESCRIBE:
            raise ValueError(
                f"task {self.name!r}: background must be one of {tuple(BACKGROUNDS)} and describe one of {DESCRIBE}, "
                f"got {self.background!r} and {self.describe!r}"
            )
        if len(self.sides) != 2 or not 0 < self.sides[0] <= self.sides[1] <= 0.5 or self._sides[0] < SMALLEST:
            raise ValueError(
                f"task {self.name!r}: sides must be the smallest and the largest side, at most 0.5 and at least "
                f"{SMALLEST} pixels of {self.size}, got {self.sides}"
            )
        check_range(self.name, "distractors", self.distractors, 0)
        check_interval(f"task {self.name!r}:", "[0, 0.5]", max_overlap=self.max_overlap)
        if self.distractors[1] and len({self.key(kind) for kind in self.kinds}) < 2:
            raise ValueError(
                f"task {self.name!r}: with describe={self.describe!r} and these shapes and colours every object fits "
                "the description; set distractors=[0, 0] or give more shapes or colours"
            )

    @abstractmethod
    def ask(self, rng: np.random.Generator) -> SceneProblem | None:
        """Draw a problem; None if the objects do not fit into the image."""

    @property
    def kinds(self) -> list[Kind]:
        """All pairs of shape and colour."""
        return [(shape, colour) for shape in self.shapes for colour in self.colours]

    @property
    def _sides(self) -> tuple[int, int]:
        return round(self.sides[0] * self.size), round(self.sides[1] * self.size)

    def key(self, kind: Kind) -> tuple[str, ...]:
        """Return what a description names of an object."""
        shape, colour = kind
        return {"any": (), "shape": (shape,), "colour": (colour,), "both": (shape, colour)}[self.describe]

    def phrase(self, kind: Kind, many: bool = False) -> str:
        """Describe an object, or all that have the same description."""
        shape, colour = kind
        noun = shape if self.describe in ("shape", "both") else "shape"
        noun = plural(noun) if many else noun
        return f"{colour} {noun}" if self.describe in ("colour", "both") else noun

    def draw_kinds(self, rng: np.random.Generator, targets: int) -> tuple[Kind, list[Kind]]:
        """Draw a description, `targets` kinds that have it, and distractors that do not have it."""
        kinds = self.kinds
        target = kinds[rng.integers(len(kinds))]
        fits = [kind for kind in kinds if self.key(kind) == self.key(target)]
        others = [kind for kind in kinds if self.key(kind) != self.key(target)]
        sample = [fits[i] for i in rng.integers(len(fits), size=targets).tolist()]
        if others:
            count = int(rng.integers(self.distractors[0], self.distractors[1], endpoint=True))
            sample += [others[i] for i in rng.integers(len(others), size=count).tolist()]
        return target, sample

    def build_scene(self, rng: np.random.Generator, kinds: Sequence[Kind]) -> Painted | None:
        """Draw places for objects of these kinds; they keep their order."""
        if self.painter is not None:
            return self.painter.paint(rng, kinds, self.size, self._sides, self.max_overlap)
        shapes = place_shapes(rng, kinds, self.size, self._sides, self.max_overlap)
        return None if shapes is None else Scene(shapes, self.size, self.background)

    def draw(self, rng: np.random.Generator) -> SceneProblem | None:
        return self.ask(rng)

    def split_key(self, problem: SceneProblem) -> str:
        return repr(sorted(shape.key for shape in problem.scene.shapes))

    def write_prompt(self, problem: SceneProblem, key: str) -> Prompt:
        content = [{"type": "image"}, {"type": "text", "text": problem.question}]
        return Prompt(
            key=key,
            messages=({"role": "user", "content": content},),
            images=(problem.scene.render(),),
            answer=problem.answer,
            info={"shapes": problem.scene.shapes, "facts": list_facts(problem.scene)},
        )

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self.problem(index).text)


def find_target(scene: Painted) -> Thing:
    """Return the described object, which is the first one."""
    return scene.shapes[0]
