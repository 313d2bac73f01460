"""A Gaussian chunk: the chain with a single transition, from nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.policies.chains.base import Chain, Lesson, Step, column
from mmrl.rng import Noise


@dataclass(frozen=True)
class GaussianChunk(Chain):
    """x_1 ~ N(answer, deviation^2), independent in every entry; the network answers the mean.

    Cloned by regression (an absolute error makes it the L1 head of OpenVLA-OFT) or by maximum likelihood, and then
    explored with a scale that it learns.
    Source: Kim et al., "OpenVLA-OFT", 2025, section 4.2, arXiv:2502.19645 (the mean).

    Args:
        deviation: standard deviation where the network says 0; it learns a factor of it.
    """

    deviation: float = 0.3
    answer = "mean"
    start = False
    spread = True

    def __post_init__(self) -> None:
        if self.deviation <= 0:
            raise ValueError(f"policy.chain.deviation must be > 0, got {self.deviation}")

    @property
    def steps(self) -> int:  # type: ignore[override]
        return 1

    def time(self, index: Tensor) -> Tensor:
        return torch.ones_like(index, dtype=torch.float32)

    def step(self, x: Tensor, index: Tensor, answer: Tensor, spread: Tensor | None, open: Tensor) -> Step:
        assert spread is not None
        log = (math.log(self.deviation) + spread).clamp(-5.0, 2.0)
        return Step(answer, log.exp() * column(open))

    def lesson(self, chunk: Tensor, noise: Noise) -> Lesson:
        return Lesson(torch.zeros_like(chunk), torch.ones_like(chunk[:, 0, 0]), chunk)
