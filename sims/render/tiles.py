"""Select the image tiles that can show moving geoms, so that most rays need not be cast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_SLACK = 1e-6  # of a cosine; more than rounding can take away


@dataclass(frozen=True)
class Tiles:
    """Square tiles of W square images (or one for all), each bounded by a cone around its mean ray."""

    pixels: np.ndarray  # [tiles, pixels] flat pixel index
    axis: np.ndarray  # [W, tiles, 3] unit mean ray
    angle: np.ndarray  # [W, tiles] rad between the axis and the farthest ray

    @classmethod
    def cut(cls, rays: np.ndarray) -> Tiles:
        """Cut the image of these rays [size * size, 3] into tiles of 8 or 4 pixels a side, if the size allows."""
        size = round(len(rays) ** 0.5)
        side = next((t for t in (8, 4) if size % t == 0), size)
        index = np.arange(size * size).reshape(size // side, side, size // side, side)
        pixels = index.transpose(0, 2, 1, 3).reshape(-1, side * side)
        axis = rays[pixels].mean(axis=1)
        axis /= np.linalg.norm(axis, axis=1, keepdims=True)
        cosine = (rays[pixels] * axis[:, None]).sum(axis=2).min(axis=1)
        return cls(pixels, axis[None], np.arccos(np.clip(cosine - _SLACK, -1, 1))[None])

    @classmethod
    def stack(cls, tiles: Sequence[Tiles]) -> Tiles:
        """Concatenate the tiles of images of one size, one per environment."""
        axis, angle = (np.concatenate([getattr(each, name) for each in tiles]) for name in ("axis", "angle"))
        return cls(tiles[0].pixels, axis, angle)

    def worth_casting(self, origin: np.ndarray, centres: np.ndarray, radii: np.ndarray) -> np.ndarray:
        """Select per environment the tiles that may show a ball, padded to an equal number, [k, M].

        Args:
            origin: [W, 3] of the camera, metres.
            centres: [k, B, 3] of the balls around all moving geoms, metres.
            radii: [B] metres; infinite for what has no bounds.
        """
        away = centres - origin[:, None]
        distance = np.linalg.norm(away, axis=2)
        # the ball lies in a cone of half-angle asin(r / d); inside the ball it is everywhere
        half_angle = np.where(radii < distance, np.arcsin(np.minimum(radii / distance, 1)), np.pi)
        between = np.arccos(
            np.clip((away / distance[..., None]) @ self.axis.transpose(0, 2, 1), -1, 1)
        )  # [k, B, tiles]
        shows = (between <= half_angle[..., None] + self.angle[:, None] + _SLACK).any(axis=1)
        return np.argsort(~shows, axis=1, kind="stable")[:, : max(1, shows.sum(axis=1).max())]
