"""Sizes of observations and actions that both Pythons know. Both import this file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def scaled_sizes(action_dims: int, chunk: int, offset: Sequence[float], width: Sequence[float]) -> dict[str, Any]:
    """Constructor arguments of a policy whose processor subtracts `offset` from "proprio" and divides it by `width`.

    Args:
        action_dims: numbers of a control step's action.
        chunk: control steps of an action.
        offset: one for each number of "proprio".
        width: likewise.
    """
    scale = {"kind": "mean_std", "offset": list(offset), "width": list(width)}
    return {
        "action_dims": action_dims,
        "chunk": chunk,
        "proprio_dims": len(offset),
        "processor": {"vectors": {"proprio": scale}},
    }
