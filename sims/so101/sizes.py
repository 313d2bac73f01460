"""Sizes of the SO-101 arm's observations and actions. Both Pythons import this file."""

from __future__ import annotations

from typing import Any

from sims.host.sizes import scaled_sizes

ACTION, PROPRIO = 4, 20
_PLACE = ((0.225, 0.0, 0.05), (0.1, 0.1, 0.05))
_PARTS = (((0.0,) * 5, (1.0,) * 5), ((0.0,) * 5, (1.0,) * 5), ((0.0,), (1.0,)), _PLACE, _PLACE, _PLACE)


def sizes(chunk: int) -> dict[str, Any]:
    """Constructor arguments of a policy; the processor scales places to about [-1, 1] within reach of the hand."""
    offset, width = ([number for part in _PARTS for number in part[k]] for k in (0, 1))
    return scaled_sizes(ACTION, chunk, offset, width)
