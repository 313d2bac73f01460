"""Distracting backgrounds: random plane waves and photographs."""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import Literal

import numpy as np

Pattern = Literal["plain", "waves", "photos"]

_SIDE = 128  # pixels of a background
_WAVES = 6
_PHOTOS = ("astronaut", "brick", "chelsea", "coffee", "grass", "gravel", "motorcycle_left", "rocket")
"""Images that lie inside the scikit-image wheel."""


def background(pattern: Pattern, rng: np.random.Generator) -> np.ndarray | None:
    """Draw one background, uint8 [128, 128, 3]; None for "plain"."""
    if pattern == "plain":
        return None
    if pattern == "waves":
        return waves(rng)
    if pattern == "photos":
        return crop(photo(_PHOTOS[int(rng.integers(len(_PHOTOS)))]), rng)
    raise ValueError(f"sim.appearance.background must be plain, waves or photos, got {pattern!r}")


def waves(rng: np.random.Generator) -> np.ndarray:
    """Sum of random plane waves per colour, half to five periods across the image."""
    along = 2 * np.pi * (np.arange(_SIDE) + 0.5) / _SIDE
    direction, phase = rng.uniform(0, 2 * np.pi, (2, 3, _WAVES))
    periods = rng.uniform(0.5, 5.0, (3, _WAVES))
    x = np.multiply.outer(along, periods * np.cos(direction))  # [S, 3, waves]
    y = np.multiply.outer(along, periods * np.sin(direction)) + phase
    # sin(x + y) = sin x cos y + cos x sin y: a product of matrices for each colour
    height = np.einsum("xcw,ycw->yxc", np.sin(x), np.cos(y)) + np.einsum("xcw,ycw->yxc", np.cos(x), np.sin(y))
    return (127.5 + 127.5 * np.clip(2 * height / _WAVES, -1, 1)).astype(np.uint8)


@functools.cache
def photo(name: str) -> np.ndarray:
    """Load a photograph of scikit-image, uint8 [H, W, 3]."""
    from skimage.io import imread

    folder = files("skimage") / "data"
    path = next((folder / f"{name}.{kind}" for kind in ("png", "jpg") if (folder / f"{name}.{kind}").is_file()), None)
    if path is None:
        raise FileNotFoundError(f"background=photos reads {name} of scikit-image, which this one lacks; install 0.24+")
    image = imread(str(path))
    return np.stack([image] * 3, axis=2) if image.ndim == 2 else image[:, :, :3]


def crop(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Random square crop, between half and all of the shorter side, at 128 pixels, mirrored with probability 0.5."""
    height, width = image.shape[:2]
    side = int(rng.uniform(0.5, 1.0) * min(height, width))
    row, column = rng.integers(height - side + 1), rng.integers(width - side + 1)
    step = (np.arange(_SIDE) + 0.5) / _SIDE * side
    part = image[row + step.astype(int)[:, None], column + step.astype(int)]
    return part[:, ::-1].copy() if rng.random() < 0.5 else part.copy()
