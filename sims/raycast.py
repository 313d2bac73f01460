"""Camera images by casting a ray per pixel: needs MuJoCo alone, any release from 2.3.7 on, and no OpenGL."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np

_SKY = np.array([205.0, 216.0, 228.0])
_LAMP = np.array([0.3, -0.4, 0.87])
_AMBIENT = 0.45


class RayCamera:
    """One of the model's cameras. Surfaces have their geom's colour, or its material's, shaded by their slope.

    MuJoCo before 3.10 gives no normals; they follow from the points that neighbouring rays hit.

    Args:
        model: of the scene.
        camera: its name.
        size: pixels a side.
        groups: of geoms that are drawn; MuJoCo draws the first three by default.
    """

    def __init__(self, model: mujoco.MjModel, camera: str, size: int, groups: Sequence[int] = (0, 1, 2)):
        self.model, self.size = model, size
        self._camera = model.camera(camera).id
        self._groups = np.isin(np.arange(6), groups).astype(np.uint8)
        half = np.tan(np.deg2rad(model.cam_fovy[self._camera]) / 2)
        places = ((np.arange(size) + 0.5) / size * 2 - 1) * half
        right, up = np.meshgrid(places, -places)
        rays = np.stack([right, up, -np.ones_like(right)], axis=-1).reshape(-1, 3)
        self._rays = rays / np.linalg.norm(rays, axis=1, keepdims=True)
        materials = model.geom_matid
        dyed = model.mat_rgba[np.maximum(materials, 0)] if model.nmat else model.geom_rgba
        self._colours = np.where((materials >= 0)[:, None], dyed, model.geom_rgba)[:, :3] * 255

    def draw(self, data: mujoco.MjData) -> np.ndarray:
        """The image of a state, uint8 [size, size, 3]."""
        origin = data.cam_xpos[self._camera]
        rays = self._rays @ data.cam_xmat[self._camera].reshape(3, 3).T
        geom, distance = _cast(self.model, data, origin, rays, self._groups)
        hit = geom >= 0
        points = (origin + rays * np.where(hit, distance, 100.0)[:, None]).reshape(self.size, self.size, 3)
        normal = np.cross(np.gradient(points, axis=1), np.gradient(points, axis=0)).reshape(-1, 3)
        normal /= np.linalg.norm(normal, axis=1, keepdims=True) + 1e-12
        light = _AMBIENT + (1 - _AMBIENT) * np.abs(normal @ (_LAMP / np.linalg.norm(_LAMP)))
        colour = np.where(hit[:, None], self._colours[geom] * light[:, None], _SKY)
        return np.clip(colour, 0, 255).round().astype(np.uint8).reshape(self.size, self.size, 3)


def _cast(
    model: mujoco.MjModel, data: mujoco.MjData, origin: np.ndarray, rays: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The geom that each ray hits first, -1 for none, and the distance."""
    count = len(rays)
    geom, distance = np.zeros(count, np.int32), np.zeros(count)
    release = tuple(int(part) for part in mujoco.__version__.split(".")[:2])
    normals = (None,) if release >= (3, 10) else ()  # an argument since 3.10
    mujoco.mj_multiRay(
        model, data, origin, rays.ravel(), groups, 1, -1, geom, distance, *normals, count, mujoco.mjMAXVAL
    )
    return geom, distance
