"""Soft updates of target networks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


@torch.no_grad()
def polyak_update(
    targets: Sequence[Tensor],
    sources: Sequence[Tensor],
    tau: float,  # in (0, 1]; 1 copies
) -> None:
    """Polyak averaging of parameters in place: target += tau * (source - target)."""
    torch._foreach_lerp_(list(targets), list(sources), tau)
