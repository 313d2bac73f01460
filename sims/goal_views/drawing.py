"""Images and segmentations of rooms of boxes, by one ray per pixel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sims.goal_views.projection import Viewpoint

NOTHING = -1
"""Segment of the floor and the sky."""
_SKY = np.array([150.0, 190.0, 230.0])
_FLOOR = np.array([[92.0, 84.0, 70.0], [112.0, 104.0, 88.0]])  # tiles of one metre, in turn
_FACES = np.array([0.8, 1.0, 0.62])  # brightness of the faces across x, y and z


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes along the axes, on a floor at y = 0.

    Args:
        low: lowest corners [B, 3], metres.
        high: highest corners [B, 3], metres.
        colours: [B, 3], from 0 to 255.
    """

    low: np.ndarray
    high: np.ndarray
    colours: np.ndarray


def draw_view(boxes: Boxes, view: Viewpoint, size: int, fovy: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw what a camera sees: image uint8 [size, size, 3], and the box of each pixel, `NOTHING` for none.

    A ray o + t d meets a box at the largest t with which it enters one of the three slabs, if that is before it leaves
    one.
    """
    origin = np.asarray(view.eye, float)
    rays = _rays(size, fovy) @ view.axes  # [P, 3]
    rays = np.where(np.abs(rays) < 1e-12, 1e-12, rays)
    # entry and exit of each slab [B, P, 3]
    low, high = ((corner - origin)[:, None] / rays for corner in (boxes.low, boxes.high))
    entries = np.minimum(low, high)
    enter, leave = entries.max(-1), np.maximum(low, high).min(-1)  # [B, P]
    distance = np.where((enter <= leave) & (enter > 0), enter, np.inf)
    nearest = distance.argmin(0)
    pixels = np.arange(len(rays))
    solid = np.isfinite(distance[nearest, pixels])
    face = entries[nearest, pixels].argmax(-1)
    # tiles of the floor, where a ray goes down
    down = rays[:, 1] < 0
    reach = np.where(down, -origin[1] / np.where(down, rays[:, 1], -1.0), 0.0)
    tile = np.floor(origin[[0, 2]] + reach[:, None] * rays[:, [0, 2]]).sum(-1).astype(int) % 2
    ground = np.where(down[:, None], _FLOOR[tile], _SKY)
    colour = np.where(solid[:, None], boxes.colours[nearest] * _FACES[face][:, None], ground)
    image = np.clip(colour, 0, 255).round().astype(np.uint8).reshape(size, size, 3)
    return image, np.where(solid, nearest, NOTHING).reshape(size, size)


@lru_cache(maxsize=8)
def _rays(size: int, fovy: float) -> np.ndarray:
    """Directions right, up and forward through the centres of the pixels, row by row, [size * size, 3]."""
    across = ((np.arange(size) + 0.5) / size * 2 - 1) * np.tan(fovy / 2)
    right, up = np.meshgrid(across, -across)
    return np.stack([right.ravel(), up.ravel(), np.ones(size * size)], axis=1)
