"""Outline of PushT's block, in the block's frame (px, y down)."""

from __future__ import annotations

import numpy as np

RADIUS = 15.0
"""Of the pusher, a disc."""
CENTRE = np.array([0.0, 45.0])
"""The block's centre of gravity; the block's own place is the middle of the bar's outer side."""
CORNERS = np.array([[-60, 0], [60, 0], [60, 30], [15, 30], [15, 120], [-15, 120], [-15, 30], [-60, 30]], float)
_SIDES = np.roll(CORNERS, -1, axis=0) - CORNERS
_LENGTHS = np.linalg.norm(_SIDES, axis=1)
_ENDS = np.cumsum(_LENGTHS)
PERIMETER = float(_ENDS[-1])
_MIDDLES = np.array([[0.0, 15.0], [0.0, 75.0]])  # of bar and stem
_HALVES = np.array([[60.0, 15.0], [15.0, 45.0]])  # of their sides


def locate(distances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points of the outline and its outward normals there, [n, 2] each.

    Args:
        distances: along the outline from its first corner (px), [n].
    """
    distances = distances % PERIMETER
    side = np.searchsorted(_ENDS, distances, side="right") % len(_SIDES)
    along = _SIDES[side] / _LENGTHS[side, None]
    point = CORNERS[side] + (distances - _ENDS[side] + _LENGTHS[side])[:, None] * along
    return point, np.stack([along[:, 1], -along[:, 0]], axis=1)


def measure_clearance(points: np.ndarray) -> np.ndarray:
    """Distances of points [..., 2] from bar or stem, the nearer one (px); negative inside."""
    beyond = np.abs(points[..., None, :] - _MIDDLES) - _HALVES
    outside = np.hypot(np.maximum(beyond[..., 0], 0), np.maximum(beyond[..., 1], 0))
    return (outside + np.minimum(np.maximum(beyond[..., 0], beyond[..., 1]), 0)).min(axis=-1)
