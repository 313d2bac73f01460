"""Standardise a column over the rows of all ranks."""

from __future__ import annotations

from torch import Tensor

from mmrl.core.types import Context
from mmrl.ops.masked import masked_whiten, zero_outside


def whiten(value: Tensor, mask: Tensor, ctx: Context, epsilon: float = 1e-8) -> Tensor:
    """Values [N, T] with mean 0 and population variance 1 inside the mask, over all ranks; 0 outside. Collective."""
    if ctx.world_size == 1:
        return masked_whiten(value, mask, epsilon)
    inside = value[mask].double()
    count, total = map(sum, zip(*ctx.collector.gather([(len(inside), float(inside.sum()))])))
    mean = total / max(count, 1)
    squares = sum(ctx.collector.gather([float((inside - mean).square().sum())]))
    std = (squares / max(count, 1)) ** 0.5
    return zero_outside(((value - mean) / (std + epsilon)).to(value.dtype), mask)
