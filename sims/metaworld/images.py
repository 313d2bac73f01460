"""Images of Meta-World's cameras."""

from __future__ import annotations

import mujoco
import numpy as np

from sims.raycast import RayCamera


class UprightCamera:
    """A camera of the model by ray casting, turned by 180 degrees where it is mounted upside down.

    Args:
        model: of the scene.
        camera: its name; Meta-World's corner cameras look at the table upside down.
        size: pixels a side.
    """

    def __init__(self, model: mujoco.MjModel, camera: str, size: int):
        self.size, self._rays = size, RayCamera(model, camera, size)
        self._upside_down = bool(model.cam_mat0[model.camera(camera).id].reshape(3, 3)[2, 1] < 0)

    def draw(self, data: mujoco.MjData) -> np.ndarray:
        """The image of a state, uint8 [size, size, 3]."""
        image = self._rays.draw(data)
        return image[::-1, ::-1].copy() if self._upside_down else image
