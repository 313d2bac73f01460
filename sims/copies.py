"""Copies of MuJoCo environments whose files take seconds to read."""

from __future__ import annotations

import copy
from typing import Any

import mujoco
import numpy as np


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
