"""Striped patches: discs whose mean tone says nothing about their stripes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mmrl.core.rng import derive_rng

DIRECTIONS = ("horizontal", "rising", "vertical", "falling")
COLOURS: dict[str, tuple[int, int, int]] = {
    "black": (20, 20, 20),
    "red": (210, 40, 40),
    "green": (30, 150, 60),
    "blue": (40, 80, 220),
}
PERIOD = 6  # pixels from stripe to stripe: at an eighth of the resolution next to nothing is left of them
PHASES, GRAINS = 16, 1024
GRAIN = 0.2  # std of the tone of single pixels, which covers what is left


@dataclass(frozen=True)
class Patch:
    """A patch, in pixels: the square with its upper left corner at (left, top) is the box around it."""

    colour: str
    left: int
    top: int
    diameter: int
    direction: str
    phase: int
    grain: int  # which noise

    @property
    def box(self) -> tuple[int, int, int, int]:
        """The edges x1, y1, x2, y2."""
        return self.left, self.top, self.left + self.diameter, self.top + self.diameter


@lru_cache(maxsize=1024)
def draw_tone(diameter: int, direction: str, phase: int) -> np.ndarray:
    """Compute how much of the patch's colour each pixel has, from 0 to 1, [diameter, diameter].

    The disc has the tone 1/2, and in it a wave (1 + cos(pi r / R)) / 2 * cos(2 pi (u / PERIOD + phase / PHASES)) / 2
    across the stripes: a Gabor patch, whose wave fades out towards the edge.
    """
    centres = np.arange(diameter) + 0.5 - diameter / 2
    x, y = centres[None, :], centres[:, None]
    distance = np.hypot(x, y) / (diameter / 2)
    angle = DIRECTIONS.index(direction) * np.pi / 4
    across = x * np.sin(angle) + y * np.cos(angle)
    wave = (1 + np.cos(np.pi * distance)) / 2 * np.cos(2 * np.pi * (across / PERIOD + phase / PHASES))
    return _freeze(np.where(distance <= 1, (1 + wave) / 2, 0.0))


@lru_cache(maxsize=GRAINS)
def draw_grain(diameter: int, grain: int) -> np.ndarray:
    """Draw the noise of a patch's tones, [diameter, diameter]."""
    return _freeze(derive_rng("acuity", "grain", grain).normal(0, GRAIN, (diameter, diameter)))


def _freeze(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False  # shared by every user of the cache
    return array


def draw_image(patches: Sequence[Patch], size: int) -> np.ndarray:
    """Draw patches on white, uint8 [size, size, 3]."""
    image = np.full((size, size, 3), 255, np.uint8)
    for patch in patches:
        x1, y1, x2, y2 = patch.box
        tone = draw_tone(patch.diameter, patch.direction, patch.phase)
        tone = np.where(tone > 0, (tone + draw_grain(patch.diameter, patch.grain)).clip(0, 1), 0)[..., None]
        image[y1:y2, x1:x2] = np.round(255 + tone * (np.array(COLOURS[patch.colour]) - 255.0))
    return image
