"""Divergence of a MuJoCo simulation, which MuJoCo itself only counts."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@functools.cache
def _warnings() -> slice:
    """Where MuJoCo counts positions, velocities and accelerations that are not finite or beyond 1e10."""
    from mujoco import mjtWarning

    kinds = (mjtWarning.mjWARN_BADQPOS, mjtWarning.mjWARN_BADQVEL, mjtWarning.mjWARN_BADQACC)  # in a row
    return slice(min(map(int, kinds)), max(map(int, kinds)) + 1)


def count_divergences(data: Any) -> int:
    """How often the simulation of `mujoco.MjData` diverged since its data were reset."""
    return sum(data.warning.number.tolist()[_warnings()])  # faster than with numpy


@contextmanager
def refuse_divergence(data: Any) -> Iterator[None]:
    """Raise if the simulation diverges inside the block.

    MuJoCo then puts it back to the model's first state in the middle of the episode, with finite numbers; what follows
    belongs to no episode.

    Raises:
        FloatingPointError: it diverged.
    """
    before = count_divergences(data)
    yield
    if count_divergences(data) > before:
        raise FloatingPointError("the MuJoCo simulation diverged and started over")
