"""Importance ratios of the policy to the behaviour policy: per token, per sequence or joint; truncated, masked."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from mmrl.ops.masked import masked_mean, masked_sum, zero_outside

ImportanceSamplingLevel = Literal["token", "sequence", "joint"]


LIMIT = 20.0
"""Largest |log-ratio| in nats: e^20 = 4.9e8 is finite in fp32 and in the square of a gradient norm. Beyond it the
gradient is 0, which matters only for an unclipped surrogate at a negative advantage."""


def log_ratio(
    logprobs: Tensor,  # [N, T] nats, with gradient
    old: Tensor,  # [N, T] nats
    mask: Tensor,  # [N, T] bool
    level: ImportanceSamplingLevel = "token",
) -> Tensor:  # [N, T] nats, 0 outside the mask
    """Importance log-ratio log(pi / pi_old) per token, per sequence (GSPO) or of the joint action.

    With d_t = logprobs_t - old_t over the choices inside the mask:
    token: d_t; sequence: mean_t d_t (geometric mean of the ratios); joint: sum_t d_t (ratio of joint probabilities).
    The last two are given to each choice of the row; use `joint` with weights that sum to the same for each row.
    Source: sequence: Group Sequence Policy Optimization, 2025, equation 7, arXiv:2507.18071.
    """
    d = zero_outside(logprobs - old, mask)
    if level == "sequence":
        d = zero_outside(masked_mean(d, mask, dim=1)[:, None].expand_as(d), mask)
    elif level == "joint":
        d = zero_outside(masked_sum(d, mask, dim=1)[:, None].expand_as(d), mask)
    elif level != "token":
        raise ValueError(f'level must be "token", "sequence" or "joint", got {level!r}')
    return d.clamp(-LIMIT, LIMIT)


def block_log_ratio(
    logprobs: Tensor,  # [N, T] nats, with gradient
    old: Tensor,  # [N, T] nats
    mask: Tensor,  # [N, T] bool
    block: int,
) -> Tensor:  # [N, T] nats, 0 outside the mask
    """log(pi / pi_old) of every `block` consecutive choices as one joint action, given to each of them.

    D_b = sum_{t in block b} d_t with d_t = logprobs_t - old_t inside the mask. A transition of a denoising chain is a
    block of control steps.
    """
    if logprobs.shape[1] % block:
        raise ValueError(f"blocks of {block} choices do not divide rows of {logprobs.shape[1]}; set chunk to the sim's")
    d = zero_outside(logprobs - old, mask).unflatten(1, (-1, block))
    return zero_outside(d.sum(dim=2, keepdim=True).expand_as(d).flatten(1), mask)


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
