"""Camera pose of a viewer with yaw and pitch, and the projection of a point onto its image."""

from __future__ import annotations

from dataclasses import dataclass
from math import tan

import numpy as np

Point = tuple[float, float, float]


@dataclass(frozen=True)
class Viewpoint:
    """Pose of a pinhole camera in a world whose axes at yaw 0 and pitch 0 are right (x), up (y) and forward (z).

    Args:
        eye: of the pinhole, metres.
        yaw: turn to the right, radians.
        pitch: tilt upwards, radians.
    """

    eye: Point
    yaw: float = 0.0
    pitch: float = 0.0

    @property
    def axes(self) -> np.ndarray:
        """Right, up and forward unit vectors of the image in the world, rows of [3, 3]."""
        (sin_yaw, cos_yaw), (sin_pitch, cos_pitch) = ((np.sin(a), np.cos(a)) for a in (self.yaw, self.pitch))
        return np.array(
            [
                [cos_yaw, 0.0, -sin_yaw],
                [-sin_yaw * sin_pitch, cos_pitch, -cos_yaw * sin_pitch],
                [sin_yaw * cos_pitch, sin_pitch, cos_yaw * cos_pitch],
            ]
        )


def project_point(point: Point, view: Viewpoint, width: int, height: int, fovy: float) -> tuple[float, float] | None:
    """Project a point onto an image: pixel coordinates (u, v) from the top left; None if it is not before the camera.

    C = R (G - U), tan(f_x / 2) = tan(f_y / 2) W / H, n_x = C_x / (C_z tan(f_x / 2)), n_y = C_y / (C_z tan(f_y / 2)),
    u = (n_x + 1) / 2 W, v = (1 - n_y) / 2 H; a point with C_z <= 0 has no image. Points beside the image have
    coordinates outside of [0, W] and [0, H]. Source: ROCKET-3, 2025, synthesis of tasks.

    Args:
        point: G, metres.
        view: the camera, with its eye U.
        width: W, pixels.
        height: H, pixels.
        fovy: f_y, vertical field of view, radians.
    """
    right, up, forward = view.axes @ (np.asarray(point, float) - view.eye)
    if forward <= 0:
        return None
    half_height = tan(fovy / 2)
    half_width = half_height * width / height
    across, along = right / (forward * half_width), up / (forward * half_height)
    return float((across + 1) / 2 * width), float((1 - along) / 2 * height)
