"""Importance ratios, clipped surrogate losses, and estimates of the KL divergence from log-probs of samples."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from mmrl.ops.masked import masked_mean, masked_sum, zero_outside

ImportanceSamplingLevel = Literal["token", "sequence", "joint"]
Estimator = Literal["k1", "k2", "k3"]

MAX_LOG_RATIO = 20.0
"""Largest |log-ratio| in nats: e^20 = 4.9e8 is finite in fp32 and in the square of a gradient norm. Beyond it the
gradient is 0, which matters only for an unclipped surrogate at a negative advantage and for the k3 estimate."""


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
    return d.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def row_log_ratio(
    logprobs: Tensor,  # [N, T] nats, with gradient
    old: Tensor,  # [N, T] nats
    mask: Tensor,  # [N, T] bool
) -> Tensor:  # [N] nats
    """Log-ratio of the joint probabilities of a row's choices, sum_t logprobs_t - old_t, for losses per row."""
    return (zero_outside(logprobs, mask) - zero_outside(old, mask)).sum(dim=1)


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


def clipped_surrogate(
    ratio: Tensor,  # [N, T]
    advantages: Tensor,  # [N, T]
    clip_low: float,
    clip_high: float,
    clip_dual: float | None = None,
) -> Tensor:  # [N, T]
    """PPO's clipped surrogate loss of each choice: gains beyond the clip range are not counted.

    loss = max(-A ratio, -A clip(ratio, 1 - clip_low, 1 + clip_high)); with clip_dual > 1 it is
    at most -A clip_dual where A < 0.
    Source: Proximal Policy Optimization Algorithms, 2017, equation 7, arXiv:1707.06347; clip_dual: Mastering Complex
    Control in MOBA Games with Deep Reinforcement Learning, 2020, arXiv:1912.09729.
    """
    loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - clip_low, 1 + clip_high))
    if clip_dual is None:
        return loss
    return torch.where(advantages < 0, torch.minimum(loss, -advantages * clip_dual), loss)


def is_clipped(
    ratio: Tensor,  # [N, T]
    advantages: Tensor,  # [N, T]
    clip_low: float,
    clip_high: float,
    clip_dual: float | None = None,
) -> Tensor:  # [N, T] bool
    """Whether `clipped_surrogate` has no gradient at a choice."""
    cut = ((advantages > 0) & (ratio > 1 + clip_high)) | ((advantages < 0) & (ratio < 1 - clip_low))
    return cut if clip_dual is None else cut | ((advantages < 0) & (ratio > clip_dual))


def cispo(
    logprobs: Tensor,  # [N, T] nats, with gradient
    ratio: Tensor,  # [N, T]
    advantages: Tensor,  # [N, T]
    clip_low: float | None,
    clip_high: float,
) -> Tensor:  # [N, T]
    """CISPO loss of each choice: REINFORCE times the clipped importance weight; every choice keeps its gradient.

    loss = -sg(clip(ratio, 1 - clip_low, 1 + clip_high)) A logprob, sg: no gradient; clip_low None: no lower bound.
    Source: MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention, 2025, equations 4 and 5,
    arXiv:2506.13585.
    """
    low = 0.0 if clip_low is None else 1 - clip_low
    return -ratio.detach().clamp(low, 1 + clip_high) * advantages * logprobs


def sapo(
    ratio: Tensor,  # [N, T]
    advantages: Tensor,  # [N, T]
    temperature_pos: float,
    temperature_neg: float,
) -> Tensor:  # [N, T]
    """SAPO loss of each choice: a sigmoid gate of the ratio in place of PPO's clip range.

    loss = -A (4 / tau) sigmoid(tau (ratio - 1)), with tau = temperature_pos where A > 0 and temperature_neg elsewhere.
    Its slope in the ratio is -A at ratio 1 and falls smoothly on both sides, faster for a larger tau.
    Source: Soft Adaptive Policy Optimization, 2025, the soft gate, arXiv:2511.20347.
    """
    tau = torch.where(advantages > 0, temperature_pos, temperature_neg).to(ratio.dtype)
    return -advantages * torch.sigmoid(tau * (ratio - 1)) * 4 / tau


def divergence(
    logprobs: Tensor,  # [N, T] nats, of the distribution that was sampled from
    reference: Tensor,  # [N, T] nats
    estimator: Estimator,
) -> Tensor:  # [N, T] nats
    """One-sample estimate of KL(policy || reference), the samples being the policy's.

    With d = reference - logprobs: k1 = -d (unbiased, can be negative, its own gradient is 0 on average);
    k2 = d^2 / 2 (biased, its gradient on average is that of KL(policy || reference));
    k3 = exp(d) - 1 - d (unbiased, never negative, its gradient on average is that of KL(reference || policy)).
    Source: Schulman, Approximating KL Divergence, 2020.
    """
    d = reference - logprobs
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return d.square() / 2
    if estimator == "k3":
        # d is clamped as a whole: clamping only the exponent would reverse the sign of the gradient
        d = d.clamp(max=MAX_LOG_RATIO)
        return d.exp() - 1 - d
    raise ValueError(f'estimator must be "k1", "k2" or "k3", got {estimator!r}')
