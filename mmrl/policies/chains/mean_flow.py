"""Average velocities: a flow head that is right in a single step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.ops.flow import between
from mmrl.policies.chains.base import Lesson, column
from mmrl.policies.chains.flow import FlowNoise
from mmrl.rng import Noise


@dataclass(frozen=True)
class MeanFlow(FlowNoise):
    """The network answers the average velocity u(x, t, r) between two times: one step leads from noise to chunk.

    Each transition jumps, x' = x - (t - r) u, with a standard deviation that the network learns, as of FlowNoise.
    Training places: two draws sigmoid(-0.4 + z), z ~ N(0, 1), the larger is t; with probability `same` r is t, and the
    target is that of the plain flow. Otherwise it holds a derivative of the network, see `mean_velocity`.
    Source: One-Step Flow Q-Learning, 2025, section 4, arXiv:2508.13904; Mean Flows, 2025, arXiv:2505.13447.

    Args:
        steps: K.
        low: smallest standard deviation.
        high: largest.
        first: transitions before this number are never open.
        same: share of training places with r = t.
    """

    steps: int = 1
    same: float = 0.5
    answer = "average velocity"  # type: ignore[assignment]
    spans = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.same <= 1:
            raise ValueError(f"policy.chain.same must be in [0, 1], got {self.same}")

    def lesson(self, chunk: Tensor, noise: Noise) -> Lesson:
        until, time = (noise.normal(2) - 0.4).sigmoid().sort(dim=1).values.to(chunk.device).unbind(dim=1)
        until = torch.where(noise.uniform().to(chunk.device) < self.same, time, until)
        end = noise.normal(*chunk.shape[1:]).to(chunk.device)
        return Lesson(between(chunk, end, column(time)), time, end - chunk, until)
