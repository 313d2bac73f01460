"""What actions are worth: several independent networks evaluated as one, and learnable numbers that price a bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class Critics(nn.Module):
    """K independent multilayer perceptrons Q_k(features, action), with one batched product per layer.

    Weights start as those of `torch.nn.Linear`: uniform in +-1/sqrt(inputs).

    Args:
        features: F, width of what the actor reads too, or of its parts side by side.
        actions: A, dimensions of the action.
        hidden: widths of the hidden layers, with rectified linear units.
        count: K; the smaller of two estimates guards against overestimation.
    """

    def __init__(self, features: int | list[int], actions: int, hidden: Sequence[int] = (256, 256), count: int = 2):
        super().__init__()
        features = features if isinstance(features, int) else sum(features)
        if count < 1:
            raise ValueError(f"critics need count >= 1, got {count}")
        self.count = count
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in pairwise([features + actions, *hidden, 1]):
            bound = 1 / math.sqrt(fan_in)
            self.weights.append(torch.empty(count, fan_in, fan_out).uniform_(-bound, bound))
            self.biases.append(torch.empty(count, 1, fan_out).uniform_(-bound, bound))

    def forward(self, features: Tensor, action: Tensor) -> Tensor:
        """[N, 1, K]: of one action per row, what each network thinks of it."""
        x = torch.cat((features, action), dim=-1).expand(self.count, -1, -1)
        *inner, last = zip(self.weights, self.biases)
        for weight, bias in inner:
            x = torch.baddbmm(bias, x, weight).relu_()
        # one product with a vector for each network: batched ones of width 1 take several times as long
        weight, bias = last
        q = torch.stack([row @ column for row, column in zip(x.unbind(), weight[..., 0].unbind())], dim=-1)
        return (q + bias[:, 0, 0])[:, None].float()


class Price(nn.Module):
    """A positive number that is learnt in log space: what one unit of a bounded quantity costs.

    Args:
        start: its first value.
    """

    def __init__(self, start: float = 1.0):
        super().__init__()
        if start <= 0:
            raise ValueError(f"a price must start above 0, got {start}")
        self.log = nn.Parameter(torch.tensor([math.log(start)]))

    def forward(self) -> Tensor:
        """[1]"""
        return self.log.exp()
