"""Sizes of LIBERO's observations and actions, equal in all suites. Both Pythons import this file."""

from __future__ import annotations

from math import pi
from typing import Any

from sims.host.sizes import scaled_sizes

ACTION = 7
"""Numbers of an action: x, y, z of the hand, its rotation, the gripper."""
PROPRIO = 8
"""Numbers of the robot's state: place of the hand, its orientation as axis times angle, both fingers."""

_OFFSET = [-0.05, 0.0, 0.2, pi, 0.0, 0.0, 0.03, -0.03]
_WIDTH = [0.1, 0.2, 0.1, 0.3, 0.3, 0.3, 0.01, 0.01]


def sizes(chunk: int) -> dict[str, Any]:
    """Constructor arguments of a policy; the processor scales the hand's place to about [-1, 1] above the objects, and
    its orientation from a hand that points downwards."""
    return scaled_sizes(ACTION, chunk, _OFFSET, _WIDTH)
