"""Importance ratios held finite: what a choice counts that another policy sampled."""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.ops.masked import zero_outside


def truncated(
    ratio: Tensor,  # [N, T]
    mask: Tensor,  # [N, T] bool
    cap: float,
) -> Tensor:  # [N, T], 0 outside the mask
    """min(ratio, cap): no choice counts more than `cap` times, at the price of a bias towards the sampling policy.

    Source: Ionides, Truncated Importance Sampling, 2008; as a weight of the policy gradient IMPALA, 2018,
    equation 1, arXiv:1802.01561.
    """
    return zero_outside(ratio.clamp(max=cap), mask)


def within(
    ratio: Tensor,  # [N, T]
    mask: Tensor,  # [N, T] bool
    low: float,
    high: float,
) -> Tensor:  # [N, T], 0 outside the mask
    """The ratio where low <= ratio <= high, and 0 elsewhere: what has become too different counts nothing."""
    return zero_outside(torch.where((ratio >= low) & (ratio <= high), ratio, 0.0), mask)
