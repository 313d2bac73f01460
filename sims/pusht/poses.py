"""Poses of PushT's block: x and y of the centre of gravity (px) and angle (rad)."""

from __future__ import annotations

from typing import Any

import numpy as np

from sims.pusht.outline import CENTRE

GYRATION = 45.0
"""How far a radian moves the block's points (px), about its radius of gyration."""


def rotate(points: np.ndarray, angles: Any) -> np.ndarray:
    """Points [..., 2] turned by angles [...]."""
    cos, sin = np.cos(angles), np.sin(angles)
    x, y = points[..., 0], points[..., 1]
    return np.stack([cos * x - sin * y, sin * x + cos * y], axis=-1)


def to_pose(block: Any) -> np.ndarray:
    """Pose [3] of a block from the package's x, y and angle, whose place is not the centre of gravity."""
    x, y, angle = block
    return np.append((x, y) + rotate(CENTRE, angle), angle)


def to_local(places: Any, pose: np.ndarray) -> np.ndarray:
    """Places [..., 2] in the block's frame."""
    return rotate(np.asarray(places, float) - pose[:2], -pose[2]) + CENTRE


def to_global(places: np.ndarray, pose: np.ndarray) -> np.ndarray:
    """Places [..., 2] of the block's frame in that of the square."""
    return pose[:2] + rotate(places - CENTRE, pose[2])


def move(poses: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """Poses [..., m, 3] after shifts [m, 3] in the block's own frame, from poses [..., 3]."""
    angles = poses[..., None, 2]
    return np.concatenate(
        [poses[..., None, :2] + rotate(shifts[:, :2], angles), (angles + shifts[:, 2])[..., None]], axis=-1
    )


def measure_error(poses: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Distances [...] of poses [..., 3] from a goal (px), the angle's error counted as GYRATION px a radian."""
    miss = poses - goal
    angle = (miss[..., 2] + np.pi) % (2 * np.pi) - np.pi
    return np.sqrt(miss[..., 0] ** 2 + miss[..., 1] ** 2 + (GYRATION * angle) ** 2)
