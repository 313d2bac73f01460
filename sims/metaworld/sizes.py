"""Sizes of Meta-World's observations and actions, equal in all tasks. Both Pythons import this file."""

from __future__ import annotations

from typing import Any

STATE = 39
"""Numbers of an observation: hand, fingers and two objects, now and one step before, and the goal."""
LONGEST = 500
"""Control steps after which Meta-World wants a reset."""

_PLACE, _FINGERS, _TURN = ((0.0, 0.6, 0.15), (0.2, 0.2, 0.15)), ((0.5,), (0.5,)), ((0.0,) * 4, (1.0,) * 4)
_NOW = (_PLACE, _FINGERS, _PLACE, _TURN, _PLACE, _TURN)
_PARTS = (*_NOW, *_NOW, _PLACE)


def sizes(chunk: int) -> dict[str, Any]:
    """Constructor arguments of a policy; the processor scales places to about [-1, 1] within reach of the hand."""
    offset, width = ([number for part in _PARTS for number in part[k]] for k in (0, 1))
    scale = {"kind": "mean_std", "offset": offset, "width": width}
    return {"action_dims": 4, "chunk": chunk, "proprio_dims": STATE, "processor": {"vectors": {"proprio": scale}}}
