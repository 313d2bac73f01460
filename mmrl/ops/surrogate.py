"""Surrogates of the expected reward whose gradient stops where the policy has moved far enough. Minimised."""

from __future__ import annotations

import torch
from torch import Tensor


def clipped_surrogate(
    ratio: Tensor,  # [N, T]
    advantages: Tensor,  # [N, T]
    low: float,
    high: float,
    dual: float | None = None,
) -> Tensor:  # [N, T]
    """Pessimistic loss of each choice: what its advantage is worth, not counting gains beyond the trust interval.

    loss = max(-A ratio, -A clip(ratio, 1 - low, 1 + high)); with dual > 1 it is at most -A dual where A < 0.
    Source: Proximal Policy Optimization Algorithms, 2017, equation 7, arXiv:1707.06347; dual: Mastering Complex
    Control in MOBA Games with Deep Reinforcement Learning, 2020, arXiv:1912.09729.
    """
    loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - low, 1 + high))
    if dual is None:
        return loss
    return torch.where(advantages < 0, torch.minimum(loss, -advantages * dual), loss)


def clipped(
    ratio: Tensor,  # [N, T]
    advantages: Tensor,  # [N, T]
    low: float,
    high: float,
    dual: float | None = None,
) -> Tensor:  # [N, T] bool
    """The choices whose gradient `clipped_surrogate` has cut to zero."""
    cut = ((advantages > 0) & (ratio > 1 + high)) | ((advantages < 0) & (ratio < 1 - low))
    return cut if dual is None else cut | ((advantages < 0) & (ratio > dual))
