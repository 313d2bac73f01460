"""Camera images by casting a ray per pixel: needs MuJoCo alone, no OpenGL."""

from __future__ import annotations

import mujoco
import numpy as np

_SKY = np.array([205.0, 216.0, 228.0])
_LAMP = np.array([0.3, -0.4, 0.87])
_AMBIENT = 0.45
_VISIBLE = np.array([1, 1, 1, 0, 0, 0], np.uint8)  # groups of geoms that MuJoCo draws by default


class RayCamera:
    """One of the model's cameras. Surfaces have their geom's colour, shaded by their slope.

    An image that would be upside down is turned by 180 degrees. MuJoCo before 3.10 gives no normals; they follow from
    the points that neighbouring rays hit.

    Args:
        model: of the scene.
        camera: its name.
        size: pixels a side.
    """

    def __init__(self, model: mujoco.MjModel, camera: str, size: int):
        self.model, self.size = model, size
        self._camera = model.camera(camera).id
        # Meta-World's corner cameras look at the table upside down
        self._upside_down = bool(model.cam_mat0[self._camera].reshape(3, 3)[2, 1] < 0)
        half = np.tan(np.deg2rad(model.cam_fovy[self._camera]) / 2)
        places = ((np.arange(size) + 0.5) / size * 2 - 1) * half
        right, up = np.meshgrid(places, -places)
        rays = np.stack([right, up, -np.ones_like(right)], axis=-1).reshape(-1, 3)
        self._rays = rays / np.linalg.norm(rays, axis=1, keepdims=True)
        materials = model.geom_matid
        dyed = model.mat_rgba[np.maximum(materials, 0)]
        self._colours = np.where((materials >= 0)[:, None], dyed, model.geom_rgba)[:, :3] * 255

    def draw(self, data: mujoco.MjData) -> np.ndarray:
        """The image of a state, uint8 [size, size, 3]."""
        origin = data.cam_xpos[self._camera]
        rays = self._rays @ data.cam_xmat[self._camera].reshape(3, 3).T
        count = len(rays)
        geom, distance = np.zeros(count, np.int32), np.zeros(count)
        mujoco.mj_multiRay(
            self.model, data, origin, rays.ravel(), _VISIBLE, 1, -1, geom, distance, count, mujoco.mjMAXVAL
        )
        hit = geom >= 0
        points = (origin + rays * np.where(hit, distance, 100.0)[:, None]).reshape(self.size, self.size, 3)
        normal = np.cross(np.gradient(points, axis=1), np.gradient(points, axis=0)).reshape(-1, 3)
        normal /= np.linalg.norm(normal, axis=1, keepdims=True) + 1e-12
        light = _AMBIENT + (1 - _AMBIENT) * np.abs(normal @ (_LAMP / np.linalg.norm(_LAMP)))
        colour = np.where(hit[:, None], self._colours[geom] * light[:, None], _SKY)
        image = np.clip(colour, 0, 255).round().astype(np.uint8).reshape(self.size, self.size, 3)
        return image[::-1, ::-1].copy() if self._upside_down else image
