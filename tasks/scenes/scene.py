"""Scenes: coloured shapes on a background, with exact boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tasks.scenes.shapes import BACKGROUNDS, COLOURS, draw_mask

_PLACES, _RESTARTS = 30, 30  # tries of one object's place, and of all places


@dataclass(frozen=True)
class Shape:
    """One object, in pixels: the square with its upper left corner at (left, top) is the box around its pixels."""

    shape: str
    colour: str
    left: int
    top: int
    side: int

    @property
    def box(self) -> tuple[int, int, int, int]:
        """The edges x1, y1, x2, y2."""
        return self.left, self.top, self.left + self.side, self.top + self.side

    @property
    def key(self) -> tuple[str | int, ...]:
        """What makes it the shape that it is."""
        return self.shape, self.colour, self.left, self.top, self.side


class Thing(Protocol):
    """An object of a scene with the box around its pixels, such as a `Shape`."""

    shape: str
    colour: str

    @property
    def box(self) -> tuple[int, int, int, int]: ...

    @property
    def key(self) -> tuple[str | int, ...]: ...


class Painted(Protocol):
    """A scene that a painter drew."""

    shapes: tuple[Thing, ...]

    @property
    def size(self) -> int: ...

    def render(self) -> np.ndarray: ...


class Painter(Protocol):
    """Draws scenes of objects in another way than with flat shapes, such as `sims.solids.SolidPainter`.

    `paint` returns a `Painted`, or None where no scene was found. Its type is Any, because the parser of configurations
    compares the annotations of an implementation with these for equality.
    """

    shapes: tuple[str, ...]
    colours: tuple[str, ...]

    def paint(
        self,
        rng: np.random.Generator,
        kinds: Sequence[tuple[str, str]],
        size: int,
        sides: tuple[int, int],
        max_overlap: float,
    ) -> Any: ...


@dataclass(frozen=True)
class Scene:
    """Objects in the order in which they are drawn; a later one covers an earlier one where they overlap."""

    shapes: tuple[Shape, ...]
    size: int
    background: str

    def render(self) -> np.ndarray:
        """Draw the scene, uint8 [size, size, 3]."""
        image = np.empty((self.size, self.size, 3), np.uint8)
        image[:] = BACKGROUNDS[self.background]
        for shape in self.shapes:
            x1, y1, x2, y2 = shape.box
            image[y1:y2, x1:x2][draw_mask(shape.shape, shape.side)] = COLOURS[shape.colour]
        return image


def list_facts(scene: Painted) -> tuple[str, ...]:
    """State each object in words, from top to bottom: the checklist of what there is to perceive."""
    ordered = sorted(scene.shapes, key=lambda shape: (shape.box[1], shape.box[0]))
    return tuple(f"a {shape.colour} {shape.shape} at the {_region(shape.box, scene.size)}" for shape in ordered)


def _region(box: tuple[int, int, int, int], size: int) -> str:
    """Name the ninth of the image that the centre of a box lies in."""
    column, row = (min(2, (box[i] + box[2 + i]) * 3 // (2 * size)) for i in (0, 1))
    words = (("top", "middle", "bottom")[row], ("left", "centre", "right")[column])
    return "centre" if words == ("middle", "centre") else " ".join(words)


def place_shapes(
    rng: np.random.Generator,
    kinds: Sequence[tuple[str, str]],
    size: int,
    sides: tuple[int, int],
    max_overlap: float,
) -> tuple[Shape, ...] | None:
    """Draw side and place of each (shape, colour); None if no arrangement was found.

    Args:
        rng: random stream.
        kinds: shape and colour of each object.
        size: side of the image in pixels.
        sides: smallest and largest side of an object in pixels.
        max_overlap: most that two boxes share, as a fraction of the smaller one.
    """
    for _ in range(_RESTARTS):
        lengths = rng.integers(sides[0], sides[1], endpoint=True, size=len(kinds)).tolist()
        levels = rng.random((len(kinds), _PLACES, 2)).tolist()
        placed: list[Shape] = []
        for (shape, colour), side, tries in zip(kinds, lengths, levels):
            for x, y in tries:
                x0, y0 = int(x * (size - side + 1)), int(y * (size - side + 1))
                if all(_overlap(x0, y0, side, other) <= max_overlap for other in placed):
                    placed.append(Shape(shape, colour, x0, y0, side))
                    break
            else:
                break
        if len(placed) == len(kinds):
            return tuple(placed)
    return None


def _overlap(left: int, top: int, side: int, other: Shape) -> float:
    """Shared area of two squares as a fraction of the smaller one."""
    width = min(left + side, other.left + other.side) - max(left, other.left)
    height = min(top + side, other.top + other.side) - max(top, other.top)
    return width * height / min(side, other.side) ** 2 if width > 0 and height > 0 else 0.0
