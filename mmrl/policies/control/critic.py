"""Q-functions as an ensemble of networks, and learnable Lagrange multipliers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class Critics(nn.Module):
    """K independent Q-functions Q_k(features, action), multilayer perceptrons with one batched product per layer.

    Weights start as those of `torch.nn.Linear`: uniform in +-1/sqrt(inputs).

    Args:
        features: F, width of the actor's features, or of their parts side by side; a part that is None has none.
        actions: A, dimensions of the action.
        hidden: widths of the hidden layers, with rectified linear units.
        count: K; the minimum of two estimates reduces overestimation (clipped double Q-learning in TD3).
    """

    def __init__(
        self, features: int | list[int | None], actions: int, hidden: Sequence[int] = (256, 256), count: int = 2
    ):
        super().__init__()
        features = features if isinstance(features, int) else sum(width or 0 for width in features)
        if count < 1:
            raise ValueError(f"critics need count >= 1, got {count}")
        self.count = count
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in pairwise([features + actions, *hidden, 1]):
            bound = 1 / math.sqrt(fan_in)
            self.weights.append(torch.empty(count, fan_in, fan_out).uniform_(-bound, bound))
            self.biases.append(torch.empty(count, 1, fan_out).uniform_(-bound, bound))

    def forward(self, features: Tensor, action: Tensor) -> Tensor:
        """Q-values [N, 1, K] of one action per row."""
        x = torch.cat((features, action), dim=-1).expand(self.count, -1, -1)
        *inner, last = zip(self.weights, self.biases)
        for weight, bias in inner:
            x = torch.baddbmm(bias, x, weight).relu_()
        # one product with a vector for each network: batched ones of width 1 take several times as long
        weight, bias = last
        q = torch.stack([row @ column for row, column in zip(x.unbind(), weight[..., 0].unbind())], dim=-1)
        return (q + bias[:, 0, 0])[:, None].float()


class LagrangeMultiplier(nn.Module):
    """A positive learnable scalar, stored as its logarithm; SAC's entropy coefficient alpha is one.

    Args:
        initial_value: greater than 0.
    """

    def __init__(self, initial_value: float = 1.0):
        super().__init__()
        if initial_value <= 0:
            raise ValueError(f"initial_value of a Lagrange multiplier must be greater than 0, got {initial_value}")
        self.log = nn.Parameter(torch.tensor([math.log(initial_value)]))

    def forward(self) -> Tensor:
        """Its value [1]."""
        return self.log.exp()
