"""Clipped surrogate losses of PPO: pessimistic bounds of the policy-gradient loss, to be minimised."""

from __future__ import annotations

import torch
from torch import Tensor


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
