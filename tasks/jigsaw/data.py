"""Photos, the band of each that belongs to a split, and the crops taken from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np
from PIL import Image

from mmrl.core.rng import derive_rng

PHOTOS = ("astronaut.png", "camera.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg")
"""Images of things that lie inside the scikit-image wheel; its other ones are textures, charts and micrographs."""

SMALLEST = 64  # pixels; below, a crop of these photos rarely shows a thing
LARGEST = 192  # pixels
CONTRAST = 16.0  # grey levels; below, two of four tiles look alike and the puzzle has no answer that can be seen
TRIES = 1000


@dataclass(frozen=True)
class PhotoSquare:
    """A square of a photo, in pixels."""

    photo: str
    left: int
    top: int
    side: int


@lru_cache(maxsize=len(PHOTOS))
def photo(name: str) -> np.ndarray:
    """Load a photo of the installed scikit-image, uint8 [height, width, 3]."""
    path = files("skimage") / "data" / name
    if not path.is_file():
        raise FileNotFoundError(f"task 'jigsaw' reads {path}, which this scikit-image does not ship; install 0.24+")
    with path.open("rb") as stream:
        return np.asarray(Image.open(stream).convert("RGB"))


@lru_cache(maxsize=64)
def band(name: str, held_out_fraction: float, seed: int, split: str) -> tuple[int, int]:
    """First and end column of the split's upright band of the photo.

    The held-out band is at the left or the right edge, as the seed says, and the rest trains: no pixel is in both.
    """
    width = photo(name).shape[1]
    num_held_out = round(held_out_fraction * width)
    at_left = bool(derive_rng("jigsaw", "side", name, seed).integers(2))
    held_out, train = (
        ((0, num_held_out), (num_held_out, width))
        if at_left
        else ((width - num_held_out, width), (0, width - num_held_out))
    )
    return held_out if split == "held_out" else train


def pixels(crop: PhotoSquare, size: int) -> np.ndarray:
    """Resize the crop to uint8 [size, size, 3] by averaging its own pixels."""
    inside = photo(crop.photo)[crop.top : crop.top + crop.side, crop.left : crop.left + crop.side]
    return np.asarray(Image.fromarray(inside).resize((size, size), Image.Resampling.LANCZOS))


def tiles(image: np.ndarray, rows: int = 2, columns: int = 2) -> np.ndarray:
    """Cut an image into tiles in reading order, [rows * columns, height / rows, width / columns, 3]."""
    height, width = image.shape[0] // rows, image.shape[1] // columns
    return image.reshape(rows, height, columns, width, 3).swapaxes(1, 2).reshape(-1, height, width, 3)


def join_tiles(pieces: np.ndarray, rows: int = 2, columns: int = 2) -> np.ndarray:
    """Join tiles: the inverse of `tiles`."""
    height, width = pieces.shape[1:3]
    return pieces.reshape(rows, columns, height, width, 3).swapaxes(1, 2).reshape(rows * height, columns * width, 3)


def contrast(pieces: np.ndarray) -> float:
    """Difference in grey levels between the two tiles that are most alike.

    Each tile [h, w, 3] is averaged over its quarters, so that even textures, such as wood, count as flat.
    """
    coarse = np.stack([tiles(piece).mean(axis=(1, 2)) for piece in pieces.astype(np.float32)])  # [n, 4, 3]
    return min(float(np.abs(coarse[i] - coarse[j]).mean()) for i in range(len(coarse)) for j in range(i))


@lru_cache(maxsize=65536)
def puzzle(
    size: int, held_out_fraction: float, seed: int, split: str, index: int, rows: int = 2, columns: int = 2
) -> tuple[PhotoSquare, tuple[int, ...]]:
    """Crop of problem `index`, and the place, from 0, of each of the shuffled tiles.

    Among n > 4 tiles the two that are most alike differ by at least CONTRAST * 4 / n.
    """
    rng = derive_rng("jigsaw", "puzzle", seed, split, index)
    count = rows * columns
    least = CONTRAST * min(1.0, 4 / count)
    for _ in range(TRIES):
        name = PHOTOS[rng.integers(len(PHOTOS))]
        first, end = band(name, held_out_fraction, seed, split)
        height = photo(name).shape[0]
        side = int(rng.integers(SMALLEST, min(LARGEST, end - first, height), endpoint=True))
        crop = PhotoSquare(name, int(rng.integers(first, end - side + 1)), int(rng.integers(height - side + 1)), side)
        if contrast(tiles(pixels(crop, size), rows, columns)) >= least:
            return crop, tuple(rng.permutation(count).tolist())
    raise RuntimeError(
        f"task 'jigsaw': none of {TRIES} crops for {split} problem {index} had enough contrast; set fewer rows"
    )
