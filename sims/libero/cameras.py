"""LIBERO's cameras, with OpenGL or by ray casting."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from sims.raycast import RayCamera

SURFACES = 1
"""The group of geoms that are drawn; group 0 has the shapes that collide."""


def make_camera(renderer: str, model: Any, name: str, size: int) -> LiberoCamera | GLCamera:
    """A camera of the model by its name, square images of `size` pixels, upright."""
    return LiberoCamera(model, name, size) if renderer == "ray" else GLCamera(model, name, size)


class LiberoCamera:
    """Ray casting: surfaces have the mean colour of their texture."""

    def __init__(self, model: Any, name: str, size: int):
        self._rays = RayCamera(model, name, size, groups=(SURFACES,))

    def draw(self, data: Any) -> np.ndarray:
        """The image of a state, uint8 [size, size, 3]."""
        return self._rays.draw(data)

    def close(self) -> None:
        """Nothing is held."""


class GLCamera:
    """OpenGL with the back end that MUJOCO_GL names: textures, lights and shadows as robosuite draws them."""

    def __init__(self, model: Any, name: str, size: int):
        self._name, self._renderer = name, mujoco.Renderer(model, size, size)
        self._options = mujoco.MjvOption()
        self._options.geomgroup[:] = 0
        self._options.geomgroup[SURFACES] = 1

    def draw(self, data: Any) -> np.ndarray:
        """The image of a state, uint8 [size, size, 3]."""
        self._renderer.update_scene(data, self._name, self._options)
        return self._renderer.render().copy()

    def close(self) -> None:
        self._renderer.close()
