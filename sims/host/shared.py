"""Arrays of all environments in one file that the trainer and the simulator's processes map into memory."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from gymnasium import spaces

WHOLE = "state"
"""Name of the array of an observation that is no Dict."""

Layout = list  # of [name, dtype, shape, offset in bytes]
_ALIGNED = 64


def plan_layout(space: spaces.Space, num_envs: int) -> tuple[Layout, int]:
    """Where the numeric parts of `num_envs` observations are, and the size of all of them in bytes.

    Args:
        space: of the observation of one environment. Other parts, such as text, are sent in messages.
        num_envs: in all processes together.
    """
    parts = space.spaces if isinstance(space, spaces.Dict) else {WHOLE: space}
    layout, end = [], 0
    for name, part in parts.items():
        if isinstance(part, (spaces.Text, spaces.Dict)) or part.dtype is None or part.shape is None:
            continue
        shape = [num_envs, *part.shape]
        layout.append([name, np.dtype(part.dtype).str, shape, end])
        size = int(np.prod(shape)) * np.dtype(part.dtype).itemsize
        end += -(-size // _ALIGNED) * _ALIGNED
    return layout, max(end, 1)


def map_arrays(file: int, layout: Layout, size: int) -> dict[str, np.ndarray]:
    """Arrays [num_envs, ...] by name in the file of that descriptor; they keep the memory mapped."""
    memory = mmap.mmap(file, size)
    return {
        name: np.ndarray(tuple(shape), np.dtype(dtype), buffer=memory, offset=offset)
        for name, dtype, shape, offset in layout
    }


def write_rows(arrays: dict[str, np.ndarray], first: int, observation: Any) -> dict[str, Any]:
    """Write the observations of environments `first`, first + 1, ... and return the parts that are in no array."""
    parts = observation if isinstance(observation, dict) else {WHOLE: observation}
    rest = {}
    for name, rows in parts.items():
        target = arrays.get(name)
        if target is None or not isinstance(rows, np.ndarray):
            rest[name] = rows
        else:
            target[first : first + len(rows)] = rows
    return rest
