"""Pinhole camera: position, target and field of view."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Point = tuple[float, float, float]


@dataclass(frozen=True)
class Camera:
    """A square pinhole camera that keeps the world's z axis upright.

    Args:
        position: of the pinhole, metres.
        target: the point in the middle of the image, metres.
        fovy: vertical field of view, degrees.
    """

    position: Point
    target: Point
    fovy: float = 45.0

    @property
    def axes(self) -> np.ndarray:
        """Right, up and backward unit vectors of the image in the world, rows of [3, 3]."""
        back = np.asarray(self.position, float) - np.asarray(self.target, float)
        back /= np.linalg.norm(back)
        right = np.cross((0.0, 0.0, 1.0), back)
        right /= np.linalg.norm(right)
        return np.stack([right, np.cross(back, right), back])

    def rays(self, size: int) -> np.ndarray:
        """Unit direction through the centre of every pixel, row by row from the top left, [size * size, 3]."""
        half = np.tan(np.deg2rad(self.fovy) / 2)
        across = ((np.arange(size) + 0.5) / size * 2 - 1) * half
        x, y = np.meshgrid(across, -across)
        rays = np.stack([x.ravel(), y.ravel(), -np.ones(size * size)], axis=1) @ self.axes
        return rays / np.linalg.norm(rays, axis=1, keepdims=True)

    def project(self, points: np.ndarray, size: int) -> np.ndarray:
        """Pixel coordinates (column, row) of world points [..., 3]; pixel centres lie at .5, [..., 2]."""
        local = (np.asarray(points) - self.position) @ self.axes.T
        half = np.tan(np.deg2rad(self.fovy) / 2)
        across = local[..., :2] / (-local[..., 2:] * half) * (1.0, -1.0)
        return (across + 1) / 2 * size

    def xml(self, name: str) -> str:
        """The same camera as an MJCF element."""
        xyaxes = " ".join(f"{v:.9g}" for v in self.axes[:2].ravel())
        position = " ".join(f"{v:.9g}" for v in self.position)
        return f'<camera name="{name}" pos="{position}" xyaxes="{xyaxes}" fovy="{self.fovy:g}"/>'
