"""A small language of rectangles and circles, and its renderer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

COLOURS = {
    "red": (220, 40, 40),
    "blue": (40, 90, 220),
    "green": (30, 150, 60),
    "yellow": (240, 210, 40),
    "black": (20, 20, 20),
}
_COMMAND = re.compile(r"(rect|circle) ([0-9]{1,3}) ([0-9]{1,3}) ([0-9]{1,3})(?: ([0-9]{1,3}))? ([a-z]+)")


@dataclass(frozen=True)
class ShapeCommand:
    """One command: `rect x1 y1 x2 y2 colour`, or `circle x y radius colour`; later shapes cover earlier ones."""

    kind: str
    numbers: tuple[int, ...]
    colour: str

    def write(self) -> str:
        """Write the command."""
        return " ".join([self.kind, *map(str, self.numbers), self.colour])


def read_program(text: str, units: int, longest: int) -> list[ShapeCommand] | None:
    """Read commands that "; " separates; None unless all are well formed, inside of the units, and at most `longest`.

    A rectangle needs x1 < x2 <= units and y1 < y2 <= units, a circle a centre up to `units` and a radius from 1 to
    `units`.
    """
    if len(text) > 40 * longest or len(parts := text.split("; ")) > longest:
        return None
    shapes = []
    for part in parts:
        match = _COMMAND.fullmatch(part)
        if match is None or match[6] not in COLOURS or (match[5] is None) != (match[1] == "circle"):
            return None
        numbers = tuple(int(match[i]) for i in range(2, 6) if match[i] is not None)
        if max(numbers) > units or not (
            numbers[0] < numbers[2] and numbers[1] < numbers[3] if len(numbers) == 4 else numbers[2] >= 1
        ):
            return None
        shapes.append(ShapeCommand(match[1], numbers, match[6]))
    return shapes


def write_program(shapes: Sequence[ShapeCommand]) -> str:
    """Write commands as `read_program` reads them."""
    return "; ".join(shape.write() for shape in shapes)


def render(shapes: Sequence[ShapeCommand], units: int, size: int) -> np.ndarray:
    """Draw shapes on white, uint8 [size, size, 3]; a pixel has the colour of the last shape that holds its centre."""
    image = np.full((size, size, 3), 255, np.uint8)
    x, y = _centres(units, size)
    for shape in shapes:
        a, b, c = shape.numbers[:3]
        if shape.kind == "circle":
            inside = (x - a) ** 2 + (y - b) ** 2 <= c**2
        else:
            inside = (x >= a) & (x < c) & (y >= b) & (y < shape.numbers[3])
        image[inside] = COLOURS[shape.colour]
    return image


@lru_cache(maxsize=16)
def _centres(units: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    centres = (np.arange(size) + 0.5) * units / size
    return centres[None, :], centres[:, None]
