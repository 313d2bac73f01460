"""Slow copies of learning parameters."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


@torch.no_grad()
def polyak(
    slow: Sequence[Tensor],
    fast: Sequence[Tensor],
    rate: float,  # in (0, 1]; 1 copies
) -> None:
    """Move the slow ones towards the fast ones in place: slow += rate * (fast - slow)."""
    torch._foreach_lerp_(list(slow), list(fast), rate)
