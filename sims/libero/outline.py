"""Outlines of objects from above, and where a gripper with two fingers holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

if TYPE_CHECKING:
    from sims.libero.scene import LiberoScene

_ANGLES = np.deg2rad(np.arange(0, 180, 5))
_OPENING_M = 0.072
"""Of the fingers, with some air."""
_FINGER = np.array([0.02, 0.03])
"""Half thickness along and across the closing direction, of a finger with some air (m)."""


@dataclass(frozen=True)
class Outline:
    """Points of an object's surface, seen from above.

    Args:
        points: of its collision shapes, world coordinates [n, 3] in metres.
    """

    points: np.ndarray

    @property
    def top(self) -> float:
        return float(self.points[:, 2].max())

    @property
    def bottom(self) -> float:
        return float(self.points[:, 2].min())


@dataclass(frozen=True)
class Grip:
    """A way to hold an object from above.

    Args:
        place: x and y between the fingertips (m).
        angle: of the direction in which they close (rad).
        width: of the object in that direction (m).
    """

    place: np.ndarray
    angle: float
    width: float


def outline_of(scene: LiberoScene, name: str) -> Outline:
    """The outline of an object of a scene, in the active episode."""
    model, data = scene.model, scene.data
    root = scene.env.obj_body_id[name]
    parts = [
        _points(model, geom) @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom]
        for geom in range(model.ngeom)
        if model.body_rootid[model.geom_bodyid[geom]] == root and model.geom_group[geom] == 0
    ]
    return Outline(np.concatenate(parts))


def find_grip(outline: Outline, closing: np.ndarray, obstacles: list[Outline]) -> Grip:
    """The grip in which the fingers touch no obstacle, the object is narrow and the hand turns little.

    Args:
        outline: of the object.
        closing: the direction in which the fingers close now, unit vector [2].
        obstacles: other objects.
    """
    flat, now = outline.points[:, :2], np.arctan2(closing[1], closing[0])
    others = [each.points[:, :2] for each in obstacles if each.top > outline.bottom + 0.02]
    grips = []
    for angle in _ANGLES:
        along, across = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
        low, high = (flat @ along).min(), (flat @ along).max()
        middle = ((flat @ across).min() + (flat @ across).max()) / 2
        grip = Grip((low + high) / 2 * along + middle * across, float(angle), float(high - low))
        turn = abs((angle - now + np.pi / 2) % np.pi - np.pi / 2)
        blocked = _count_in_fingers(grip, along, across, others)
        cost = 10.0 * max(grip.width - _OPENING_M, 0) * 100 + min(blocked, 20) + 20 * grip.width + 0.5 * turn
        grips.append((cost, grip))
    return min(grips, key=lambda pair: pair[0])[1]


def _count_in_fingers(grip: Grip, along: np.ndarray, across: np.ndarray, others: list[np.ndarray]) -> int:
    """How many points of obstacles are where the open fingers go down."""
    count = 0
    for points in others:
        moved = points - grip.place
        for side in (-1, 1):
            beside = np.abs(moved @ along - side * (_OPENING_M / 2 + _FINGER[0])) < _FINGER[0]
            count += int((beside & (np.abs(moved @ across) < _FINGER[1])).sum())
    return count


def _points(model: Any, geom: int) -> np.ndarray:
    """Points of a shape in its own coordinates: a mesh's vertices, or points on a box, cylinder, capsule or sphere."""
    kind, size = model.geom_type[geom], model.geom_size[geom]
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        first = model.mesh_vertadr[mesh]
        return model.mesh_vert[first : first + model.mesh_vertnum[mesh]].astype(np.float64)
    if kind == mujoco.mjtGeom.mjGEOM_BOX:
        return np.array(np.meshgrid(*(np.linspace(-s, s, 5) for s in size))).reshape(3, -1).T
    angles = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1) * size[0]
    half = size[1] if kind in (mujoco.mjtGeom.mjGEOM_CYLINDER, mujoco.mjtGeom.mjGEOM_CAPSULE) else size[0]
    return np.concatenate([np.column_stack([ring, np.full(16, z)]) for z in (-half, 0, half)])
