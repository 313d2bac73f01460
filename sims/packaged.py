"""MuJoCo environments of other packages, in chunks of control steps."""

from __future__ import annotations

import copy
from typing import Any

import mujoco
import numpy as np

from sims.divergence import refuse_divergence
from sims.host.chunk_env import ChunkEnv
from sims.raycast import RayCamera


def copy_simulation(env: Any) -> Any:
    """Another environment of the same scene: model, state and arrays are its own, all else is shared.

    Args:
        env: unwrapped, with its model and state in `_model` and `_data`, and reset with a seed before it is used.
    """
    other = copy.copy(env)
    for name, value in vars(env).items():
        if isinstance(value, (np.ndarray, list)):
            setattr(other, name, copy.copy(value))
    other._model = copy.deepcopy(env._model)
    other._data = mujoco.MjData(other._model)
    return other


class PackagedEnv(ChunkEnv):
    """A package's environment, seen by its camera "front".

    Args:
        env: as of `copy_simulation`; it is copied.
        chunk, action_dims, proprio_dims, max_steps, image_size: as of `ChunkEnv`.
    """

    def __init__(self, env: Any, chunk: int, action_dims: int, proprio_dims: int, max_steps: int, image_size: int):
        super().__init__(chunk, action_dims, proprio_dims, max_steps, image_size)
        self._env = copy_simulation(env)
        self._cameras: dict[int, RayCamera] = {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """As of `ChunkEnv`; FloatingPointError if the simulation diverges."""
        with refuse_divergence(self._env.data):
            return super().step(action)

    def render(self, size: int = 256) -> np.ndarray:  # type: ignore[override]
        """Image of the camera "front" by ray casting, uint8 [size, size, 3]."""
        if size not in self._cameras:
            self._cameras[size] = RayCamera(self._env.model, "front", size)
        return self._cameras[size].draw(self._env.data)
