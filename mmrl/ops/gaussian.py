"""Log-density and entropy of independent Gaussians; a standard deviation of 0 stands for a forced step."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_LOG_TAU = math.log(2 * math.pi)


def normal_logprob(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """-((x - mean) / std)^2 / 2 - log std - log(2 pi) / 2, entry by entry; 0 where the std is 0."""
    stochastic = std > 0
    safe = torch.where(stochastic, std, 1)
    value = -0.5 * ((x - mean) / safe).square() - safe.log() - 0.5 * _LOG_TAU
    return torch.where(stochastic, value, 0)


def normal_entropy(std: Tensor) -> Tensor:
    """log std + (1 + log(2 pi)) / 2, entry by entry; 0 where the std is 0."""
    stochastic = std > 0
    return torch.where(stochastic, torch.where(stochastic, std, 1).log() + 0.5 * (1 + _LOG_TAU), 0)
