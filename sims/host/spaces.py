"""gymnasium's spaces as plain values."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces


def describe_space(space: spaces.Space) -> dict[str, Any]:
    """Plain values and arrays from which `build_space` builds an equal space.

    Raises:
        TypeError: the space is of another kind than those of `build_space`.
    """
    if isinstance(space, spaces.Box):
        return {"kind": "box", "low": space.low, "high": space.high, "dtype": space.dtype.str}
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start), "dtype": space.dtype.str}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "multi_discrete", "nvec": space.nvec, "dtype": space.dtype.str}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "multi_binary", "n": space.n if isinstance(space.n, int) else list(space.n)}
    if isinstance(space, spaces.Text):
        lengths = {"min_length": space.min_length, "max_length": space.max_length}
        return {"kind": "text", **lengths, "charset": "".join(space.character_list)}
    if isinstance(space, spaces.Dict):
        return {"kind": "dict", "parts": [[name, describe_space(part)] for name, part in space.spaces.items()]}
    raise TypeError(f"a simulator in another process cannot have the space {space}")


def build_space(plain: dict[str, Any]) -> spaces.Space:
    """The space of `describe_space`."""
    kind = plain["kind"]
    if kind == "box":
        return spaces.Box(plain["low"], plain["high"], dtype=np.dtype(plain["dtype"]).type)
    if kind == "discrete":
        return spaces.Discrete(plain["n"], start=plain["start"])
    if kind == "multi_discrete":
        return spaces.MultiDiscrete(plain["nvec"], dtype=np.dtype(plain["dtype"]).type)
    if kind == "multi_binary":
        return spaces.MultiBinary(plain["n"])
    if kind == "text":
        return spaces.Text(plain["max_length"], min_length=plain["min_length"], charset=plain["charset"])
    return spaces.Dict({name: build_space(part) for name, part in plain["parts"]})
