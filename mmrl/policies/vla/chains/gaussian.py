"""Gaussian chunk: a chain with a single transition that does not start from noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.errors import check_positive
from mmrl.core.rng import Noise
from mmrl.policies.vla.chains.base import Chain, DenoisingTarget, TransitionParams, column


@dataclass(frozen=True)
class GaussianChunk(Chain):
    """x_1 ~ N(prediction, std^2), independent in every entry; the network predicts the mean.

    Cloning is regression (with an absolute error this is the L1 head of OpenVLA-OFT) or maximum likelihood. RL then
    explores with a learned standard deviation.
    Source: Kim et al., "OpenVLA-OFT", 2025, section 4.2, arXiv:2502.19645 (the mean).

    Args:
        init_std: standard deviation where the network predicts 0; it learns a factor of it.
    """

    init_std: float = 0.3
    prediction_type = "mean"
    stores_noise = False
    predicts_std = True

    def __post_init__(self) -> None:
        check_positive("policy.chain", init_std=self.init_std)

    @property
    def steps(self) -> int:  # type: ignore[override]
        return 1

    def time(self, index: Tensor) -> Tensor:
        return torch.ones_like(index, dtype=torch.float32)

    def step(
        self, x: Tensor, index: Tensor, prediction: Tensor, log_std: Tensor | None, stochastic: Tensor
    ) -> TransitionParams:
        assert log_std is not None
        log = (math.log(self.init_std) + log_std).clamp(-5.0, 2.0)
        return TransitionParams(prediction, log.exp() * column(stochastic))

    def sample_target(self, chunk: Tensor, noise: Noise) -> DenoisingTarget:
        return DenoisingTarget(torch.zeros_like(chunk), torch.ones_like(chunk[:, 0, 0]), chunk)
