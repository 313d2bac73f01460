"""Which parts of a picture can show moving things at all: most rays need not be cast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_SLACK = 1e-6  # of a cosine; more than rounding can take away


@dataclass(frozen=True)
class Tiles:
    """A square picture cut into square tiles, each inside a cone around its mean ray."""

    pixels: np.ndarray  # [tiles, pixels] flat pixel index
    axis: np.ndarray  # [tiles, 3] unit mean ray
    angle: np.ndarray  # [tiles] rad between the axis and the farthest ray

    @classmethod
    def cut(cls, rays: np.ndarray) -> Tiles:
        """Cut the picture of these rays [size * size, 3] into tiles of 8 or 4 pixels a side, where its size allows."""
        size = round(len(rays) ** 0.5)
        side = next((t for t in (8, 4) if size % t == 0), size)
        index = np.arange(size * size).reshape(size // side, side, size // side, side)
        pixels = index.transpose(0, 2, 1, 3).reshape(-1, side * side)
        axis = rays[pixels].mean(axis=1)
        axis /= np.linalg.norm(axis, axis=1, keepdims=True)
        cosine = (rays[pixels] * axis[:, None]).sum(axis=2).min(axis=1)
        return cls(pixels, axis, np.arccos(np.clip(cosine - _SLACK, -1, 1)))

    def worth_casting(self, origin: np.ndarray, centres: np.ndarray, radii: np.ndarray) -> np.ndarray:
        """Per world the tiles that may show a ball, first, filled up to an equal number with others, [k, M].

        Args:
            origin: [3] of the camera, metres.
            centres: [k, B, 3] of the balls around all moving geoms, metres.
            radii: [B] metres; infinite for what has no bounds.
        """
        away = centres - origin
        distance = np.linalg.norm(away, axis=2)
        # the ball lies in a cone of half-angle asin(r / d); inside the ball it is everywhere
        spread = np.where(radii < distance, np.arcsin(np.minimum(radii / distance, 1)), np.pi)
        between = np.arccos(np.clip((away / distance[..., None]) @ self.axis.T, -1, 1))  # [k, B, tiles]
        shows = (between <= spread[..., None] + self.angle + _SLACK).any(axis=1)
        return np.argsort(~shows, axis=1, kind="stable")[:, : max(1, shows.sum(axis=1).max())]
