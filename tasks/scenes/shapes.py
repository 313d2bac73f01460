"""Shapes as pixel masks that touch all four edges of their square, and colours."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (220, 40, 40),
    "green": (40, 160, 60),
    "blue": (40, 80, 220),
    "yellow": (240, 210, 40),
    "purple": (140, 50, 170),
    "orange": (245, 140, 30),
    "cyan": (40, 190, 210),
    "pink": (245, 150, 190),
}
BACKGROUNDS: dict[str, tuple[int, int, int]] = {"white": (255, 255, 255), "grey": (128, 128, 128), "black": (0, 0, 0)}

# of x [1, side], y [side, 1] in [-1, 1], and e, the distance of the middle pixels of an even side from the centre
_SHAPES: dict[str, Callable[[np.ndarray, np.ndarray, float], np.ndarray]] = {
    "circle": lambda x, y, e: x**2 + y**2 <= 1 + e**2,
    "square": lambda x, y, e: np.maximum(np.abs(x), np.abs(y)) <= 1,
    "triangle": lambda x, y, e: 2 * np.abs(x) <= 1 + y + 2 * e,
    "diamond": lambda x, y, e: np.abs(x) + np.abs(y) <= 1 + e,
    "cross": lambda x, y, e: np.minimum(np.abs(x), np.abs(y)) <= 1 / 3,
    "ring": lambda x, y, e: (x**2 + y**2 <= 1 + e**2) & (x**2 + y**2 >= 0.3),
}
SHAPES = tuple(_SHAPES)
SMALLEST = 7  # pixels; below, shapes look alike


@lru_cache(maxsize=1024)
def draw_mask(shape: str, side: int) -> np.ndarray:
    """Draw a shape into a square of pixels, bool [side, side]; each edge of the square has a pixel of the shape."""
    centres = np.linspace(-1, 1, side)
    mask = _SHAPES[shape](centres[None, :], centres[:, None], 1.001 / (side - 1) if side % 2 == 0 else 0.0)
    mask.flags.writeable = False  # shared by every user of the cache
    return mask


def plural(noun: str) -> str:
    """Return the plural of a shape's name."""
    return noun + ("es" if noun.endswith("s") else "s")
