"""Sizes of PushT's observations and actions. Both Pythons import this file."""

from __future__ import annotations

from typing import Any

from sims.host.sizes import scaled_sizes

ACTION, PROPRIO = 2, 6
HALF = 256.0
"""Places (px) are observed and asked for from the middle of the square, in halves of its side."""


def sizes(chunk: int) -> dict[str, Any]:
    """Constructor arguments of a policy; the environment scales its numbers, so that the processor leaves them."""
    return scaled_sizes(ACTION, chunk, [0.0] * PROPRIO, [1.0] * PROPRIO)
