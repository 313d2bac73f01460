"""Masked reductions. Values outside of the mask may be NaN; they affect neither value nor gradient.

Every function selects with `torch.where` before it multiplies, because 0 * NaN is NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor


def last_inside(
    mask: Tensor,  # [N, T] bool
) -> Tensor:  # [N] int64
    """Number of choices of a row up to and including the last one inside the mask; 0 if the mask is empty."""
    return (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(dim=1)


def zero_outside(
    value: Tensor,  # [N, T]
    mask: Tensor,  # [N, T] bool
) -> Tensor:  # [N, T]
    """The value where the mask is True and 0 elsewhere, with no gradient there."""
    if value.is_floating_point():  # which a plain 0 leaves as they are
        return torch.where(mask, value, 0)
    return torch.where(mask, value, torch.zeros((), dtype=value.dtype, device=value.device))


def masked_sum(value: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum of the values inside the mask: sum_t mask_t * value_t."""
    inside = zero_outside(value, mask)
    return inside.sum() if dim is None else inside.sum(dim)


def masked_mean(value: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of the values inside the mask, 0 where nothing is inside: sum_t mask_t * value_t / sum_t mask_t."""
    count = mask.sum() if dim is None else mask.sum(dim)
    return masked_sum(value, mask, dim) / count.clamp(min=1)


def masked_variance(value: Tensor, mask: Tensor) -> Tensor:
    """Population variance of the values inside the mask, 0 where nothing is inside."""
    return masked_mean((value - masked_mean(value, mask)).square(), mask)


def masked_whiten(value: Tensor, mask: Tensor, epsilon: float = 1e-8) -> Tensor:
    """Values with mean 0 and population variance 1 inside the mask, 0 outside: (x - mean) / (std + epsilon)."""
    centred = zero_outside(value - masked_mean(value, mask), mask)
    return centred / (masked_variance(value, mask).sqrt() + epsilon)
