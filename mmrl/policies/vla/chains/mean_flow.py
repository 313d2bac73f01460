"""Mean flows: a head that predicts average velocities and samples in a single step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.errors import check_fraction
from mmrl.core.rng import Noise
from mmrl.ops.flow import interpolate
from mmrl.policies.vla.chains.base import DenoisingTarget, column
from mmrl.policies.vla.chains.flow import FlowNoise


@dataclass(frozen=True)
class MeanFlow(FlowNoise):
    """Mean flow: the network predicts the average velocity u(x, t, r) between two times; one step samples a chunk.

    Each transition jumps, x' = x - (t - r) u, with a standard deviation that the network predicts, as in FlowNoise.
    Training: two draws sigmoid(-0.4 + z), z ~ N(0, 1), the larger is t; with probability `flow_ratio` r is t, and the
    target is that of the plain flow. Otherwise it holds a derivative of the network, see `mean_velocity`.
    Source: One-Step Flow Q-Learning, 2025, section 4, arXiv:2508.13904; Mean Flows, 2025, arXiv:2505.13447.

    Args:
        steps: K.
        min_std: smallest standard deviation.
        max_std: largest.
        first_stochastic_step: earlier transitions are never stochastic.
        flow_ratio: fraction of timesteps with r = t.
    """

    steps: int = 1
    flow_ratio: float = 0.5
    prediction_type = "average_velocity"  # type: ignore[assignment]
    reads_end_time = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction("policy.chain", flow_ratio=self.flow_ratio)

    def sample_target(self, chunk: Tensor, noise: Noise) -> DenoisingTarget:
        end_time, time = (noise.normal(2) - 0.4).sigmoid().sort(dim=1).values.to(chunk.device).unbind(dim=1)
        end_time = torch.where(noise.uniform().to(chunk.device) < self.flow_ratio, time, end_time)
        epsilon = noise.normal(*chunk.shape[1:]).to(chunk.device)
        return DenoisingTarget(interpolate(chunk, epsilon, column(time)), time, epsilon - chunk, end_time)
