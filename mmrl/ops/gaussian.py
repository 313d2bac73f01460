"""Density and entropy of independent Gaussians, where a deviation of 0 stands for a step that was not a choice."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_LOG_TAU = math.log(2 * math.pi)


def normal_logprob(x: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """-((x - mean) / deviation)^2 / 2 - log deviation - log(2 pi) / 2, entry by entry; 0 where the deviation is 0."""
    chosen = deviation > 0
    safe = torch.where(chosen, deviation, 1)
    value = -0.5 * ((x - mean) / safe).square() - safe.log() - 0.5 * _LOG_TAU
    return torch.where(chosen, value, 0)


def normal_entropy(deviation: Tensor) -> Tensor:
    """log deviation + (1 + log(2 pi)) / 2, entry by entry; 0 where the deviation is 0."""
    chosen = deviation > 0
    return torch.where(chosen, torch.where(chosen, deviation, 1).log() + 0.5 * (1 + _LOG_TAU), 0)
