"""Compare the image that an answer draws with the image to draw."""

from __future__ import annotations

import numpy as np
from scipy import ndimage
from skimage.feature import canny
from skimage.metrics import structural_similarity

ZERO = {"exact": 0.0, "pixels": 0.0, "edges": 0.0, "ssim": 0.0, "length": 0.0, "format": 0.0}


def verify(drawn: np.ndarray | None, image: np.ndarray, characters: int, reference: int) -> dict[str, float]:
    """Score what an answer draws.

    exact: 1 if every pixel is equal. pixels: `pixel_score`, at least 0. edges: the same of `edge_map`. ssim: structural
    similarity of the grey images, at least 0.
    length: `length_score` divided by that of the reference, in [0, 1]. format: 1 if the answer can be drawn.

    Args:
        drawn: the image of the answer, uint8 [size, size, 3]; None if it cannot be read.
        image: the image to draw, uint8 [size, size, 3].
        characters: length of the answer.
        reference: length of the reference answer.
    """
    if drawn is None:
        return dict(ZERO)
    scale = length_score(characters, reference) / length_score(reference, reference)
    grey, target = (np.ascontiguousarray(each.mean(axis=2, dtype=np.float32)) for each in (drawn, image))
    similar = structural_similarity(grey, target, data_range=255)
    return {
        "exact": float(np.array_equal(drawn, image)),
        "pixels": max(0.0, pixel_score(image, drawn)),
        "edges": max(0.0, pixel_score(edge_map(target), edge_map(grey))),
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


def edge_map(grey: np.ndarray) -> np.ndarray:
    """Canny edges of a grey image [H, W] in [0, 255], widened by a pixel and blurred: its structure without colours.

    Thresholds 50 and 150, one dilation by 3 x 3, and a Gaussian of 13 pixels (standard deviation 2.3).
    Source: as `pixel_score`, its Canny variant.
    """
    # a standard deviation of 0.1 leaves the image as it is
    edges = canny(grey.astype(np.float64), sigma=0.1, low_threshold=50, high_threshold=150)
    wide = ndimage.binary_dilation(edges, np.ones((3, 3)))
    return ndimage.gaussian_filter(wide.astype(np.float64), 2.3, radius=6)


def length_score(characters: int, reference: int) -> float:
    """1 - (max(0, L - R / 2) / R)^2 for a program of L characters and a reference of R.

    Source: as `pixel_score`.
    """
    return 1 - (max(0.0, characters - reference / 2) / reference) ** 2


def _normalise(image: np.ndarray) -> np.ndarray:
    centred = image.astype(np.float64) - image.mean()
    return centred / (centred.std() or 1.0)
