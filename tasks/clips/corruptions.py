"""Corruptions of consecutive frames of a clip: of colour, place, sharpness and time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter

Corruption = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""Frames, uint8 [n, size, size, 3], and a random stream to as many frames."""


def _grey(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.repeat(frames.mean(axis=3, keepdims=True).astype(np.uint8), 3, axis=3)


def _noise(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    noise = rng.normal(0, rng.uniform(35, 70), frames.shape)
    return np.clip(frames + noise, 0, 255).astype(np.uint8)


def _turn(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.rot90(frames, 1 if rng.integers(2) else 3, axes=(1, 2))


def _zoom_in(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    size = frames.shape[1]
    side = size / rng.uniform(1.3, 1.5)
    edges = ((size - side) / 2, (size - side) / 2, (size + side) / 2, (size + side) / 2)
    return _each(frames, lambda image: image.resize((size, size), Image.Resampling.BILINEAR, box=edges))


def _zoom_out(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    size = frames.shape[1]
    side = round(size / rng.uniform(1.2, 1.4))
    low = (size - side) // 2
    out = np.zeros_like(frames)
    out[:, low : low + side, low : low + side] = _each(frames, lambda image: image.resize((side, side)))
    return out


def _shuffle(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Permute the frames so that neither the first nor the last one keeps its place: the interval shows its ends."""
    last = len(frames) - 1
    while True:
        order = rng.permutation(len(frames))
        if order[0] != 0 and order[last] != last:
            return frames[order]


def _each(frames: np.ndarray, change: Callable[[Image.Image], Image.Image]) -> np.ndarray:
    return np.stack([np.asarray(change(Image.fromarray(np.ascontiguousarray(frame)))) for frame in frames])


SEVERAL = ("shuffle", "freeze")
"""Corruptions that need two frames or more."""
DRAWN = ("turn", "noise", "zoom_in", "zoom_out", "shuffle")
"""Corruptions whose strength, side or order is drawn."""
OTHER_FILM = "other"
"""The frames are those of another film."""
CORRUPTIONS: Mapping[str, Corruption] = {
    "grey": _grey,
    "invert": lambda frames, rng: 255 - frames,
    "swap": lambda frames, rng: frames[..., ::-1],  # red and blue
    "rotate": lambda frames, rng: frames[:, ::-1, ::-1],  # by 180 degrees
    "turn": _turn,  # by 90 degrees to either side
    "noise": _noise,
    "zoom_in": _zoom_in,
    "zoom_out": _zoom_out,
    "mirror": lambda frames, rng: frames[:, :, ::-1],
    "blur": lambda frames, rng: _each(frames, lambda image: image.filter(ImageFilter.GaussianBlur(2))),
    "saturate": lambda frames, rng: _each(frames, lambda image: ImageEnhance.Color(image).enhance(2.0)),
    "shuffle": _shuffle,
    "freeze": lambda frames, rng: np.repeat(frames[:1], len(frames), axis=0),
    OTHER_FILM: lambda frames, rng: frames,  # which the task renders
}
"""The thirteen corruptions of VideoSSR, whose rotation is two of them: rotate and turn."""
SYMMETRIES = ("rotate", "mirror", "turn", "zoom_in", OTHER_FILM)
"""Those that make another film of a film: where frames at one end are altered, the other frames may be so as well."""
