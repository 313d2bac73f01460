"""The memory of a recurrent policy between the calls of whoever plays: given with an observation, returned with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmrl.policies.base import Policy
from mmrl.rollouts.env.memory import MEMORY


def add_memory(policy: Policy, raw: Mapping[str, Any], memory: Any = None) -> Mapping[str, Any]:
    """Return a raw observation with the memory; zeros, as at the start of an episode, where none is given.

    A policy without a memory reads the observation as it is.
    """
    dims = getattr(policy, "memory_dims", 0)
    if not dims or MEMORY in raw:
        return raw
    return {**raw, MEMORY: np.zeros(dims, np.float32) if memory is None else memory}


def split_memory(policy: Policy, output: Any) -> tuple[Any, Any]:
    """Split a policy's output into the action and the memory for the next call; None without a memory."""
    if not getattr(policy, "memory_dims", 0):
        return output, None
    return policy.split_output(np.asarray(output))  # type: ignore[operator]
