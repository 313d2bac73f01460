"""Verify a drawing program: render it and compare the images."""

from __future__ import annotations

import numpy as np
from skimage.metrics import structural_similarity

from tasks.checks import final_line
from tasks.drawings.program import read_program, render

ZERO = {"exact": 0.0, "pixels": 0.0, "ssim": 0.0, "length": 0.0, "format": 0.0}


def verify(text: str, image: np.ndarray, units: int, longest: int, characters: int) -> dict[str, float]:
    """Score the program on the final line.

    exact: 1 if every pixel is equal. pixels: `pixel_score`, at least 0. ssim: structural similarity of the
    grey images, at least 0.
    length: `length_score` divided by that of the reference, in [0, 1]. format: 1 if the program can be read.

    Args:
        text: the answer.
        image: the image to draw, uint8 [size, size, 3].
        units: units across the image.
        longest: most commands.
        characters: length of the reference program.
    """
    program = final_line(text)
    shapes = read_program(program, units, longest)
    if shapes is None:
        return dict(ZERO)
    drawn = render(shapes, units, len(image))
    scale = length_score(len(program), characters) / length_score(characters, characters)
    grey, wanted = (np.ascontiguousarray(each.mean(axis=2, dtype=np.float32)) for each in (drawn, image))
    similar = structural_similarity(grey, wanted, data_range=255)
    return {
        "exact": float(np.array_equal(drawn, image)),
        "pixels": max(0.0, pixel_score(image, drawn)),
        "ssim": max(0.0, float(similar)),
        "length": min(1.0, max(0.0, scale)),
        "format": 1.0,
    }


def pixel_score(image: np.ndarray, drawn: np.ndarray) -> float:
    """clip(1 - mean((z(I) - z(J))^2), -1, 1); z subtracts an image's mean and divides by its standard deviation.

    z of a constant image is 0, so that a blank drawing earns 0 or less.
    Source: Rodriguez et al., "Rendering-Aware Reinforcement Learning for Vector Graphics Generation", arXiv 2505.20793.
    """
    return float(np.clip(1 - np.mean((_normalise(image) - _normalise(drawn)) ** 2), -1, 1))


def length_score(characters: int, reference: int) -> float:
    """1 - (max(0, L - R / 2) / R)^2 for a program of L characters and a reference of R.

    Source: as `pixel_score`.
    """
    return 1 - (max(0.0, characters - reference / 2) / reference) ** 2


def _normalise(image: np.ndarray) -> np.ndarray:
    centred = image.astype(np.float64) - image.mean()
    return centred / (centred.std() or 1.0)
