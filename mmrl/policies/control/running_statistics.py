"""Running mean and variance of observations, a part of the policy's weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

CLIP = 10.0
"""Largest absolute value of a normalised observation, as in Stable-Baselines3's VecNormalize."""
_EPSILON = 1e-8


class RunningStatistics(nn.Module):
    """(x - mean) / sqrt(var + 1e-8), clipped to [-10, 10], with the mean and variance of all rows of training.

    `count_rows` notes the rows of an iteration, and `include_rows` makes them count: at the start of the next one, so
    that all rows of an iteration are sampled, learned from, evaluated and exported with the same numbers. Before the
    first rows x is unchanged but for the clipping. All of it is saved with the policy.

    Args:
        dims: D, length of x.
    """

    mean: Tensor
    var: Tensor
    count: Tensor
    new_sums: Tensor

    def __init__(self, dims: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(dims))
        self.register_buffer("var", torch.ones(dims))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("new_sums", torch.zeros(3, dims, dtype=torch.float64))  # rows, x - mean, (x - mean)^2

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean) * (self.var + _EPSILON).rsqrt()).clamp(-CLIP, CLIP)

    @torch.no_grad()
    def count_rows(self, x: Tensor, total: Callable[[Tensor], Tensor]) -> None:
        """Note rows x [N, D]; `total` sums a tensor over all processes."""
        distance = x.to(self.mean.device).double() - self.mean
        sums = torch.stack([torch.ones_like(distance).sum(0), distance.sum(0), distance.square().sum(0)])
        self.new_sums += total(sums).to(self.new_sums)

    @torch.no_grad()
    def include_rows(self) -> None:
        """Update mean and variance by the rows that were noted.

        Source: Chan et al., "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
        """
        rows = self.new_sums[0]
        if not bool(rows.any()):
            return
        shift, whole = self.new_sums[1] / rows, self.count + rows
        squares = self.new_sums[2] - rows * shift.square()
        old = self.var.double() * self.count
        self.var.copy_((old + squares + shift.square() * self.count * rows / whole) / whole)
        self.mean.add_(shift * rows / whole)
        self.count.copy_(whole[0])
        self.new_sums.zero_()
