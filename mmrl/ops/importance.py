"""Truncated and masked importance weights for off-policy tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.ops.masked import zero_outside


def truncate_ratio(
    ratio: Tensor,  # [N, T]
    mask: Tensor,  # [N, T] bool
    cap: float,
) -> Tensor:  # [N, T], 0 outside the mask
    """TIS: truncated importance ratios min(ratio, cap), which are biased towards the behaviour policy.

    Source: Ionides, Truncated Importance Sampling, 2008; as a weight of the policy gradient IMPALA, 2018,
    equation 1, arXiv:1802.01561.
    """
    return zero_outside(ratio.clamp(max=cap), mask)


def mask_ratio(
    ratio: Tensor,  # [N, T]
    mask: Tensor,  # [N, T] bool
    min_ratio: float,
    max_ratio: float,
) -> Tensor:  # [N, T], 0 outside the mask
    """MIS: masked importance ratios, the ratio where min_ratio <= ratio <= max_ratio and 0 elsewhere."""
    return zero_outside(torch.where((ratio >= min_ratio) & (ratio <= max_ratio), ratio, 0.0), mask)
