"""Values of a state for policies that read a camera, an instruction and a body."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class StateValue(nn.Module):
    """The expected return as a function of the state, [N].

    Args:
        features: width of what it reads.
        hidden_size: of its own two layers.
    """

    def __init__(self, features: int, hidden_size: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(features),
            nn.Linear(features, hidden_size),
            nn.SiLU(),
            nn.Linear(hidden_size, hidden_size),
            nn.SiLU(),
            nn.Linear(hidden_size, 1),
        )

    def forward(self, features: Tensor) -> Tensor:
        return self.layers(features)[:, 0].float()


def seen_said_felt(visual: Tensor, words: Tensor, present: Tensor, proprio: Tensor) -> Tensor:
    """[N, K D + D + P] features of a critic of its own: visual tokens [N, K, D], the mean of the words, the body."""
    weight = present[..., None].to(words.dtype)
    mean = (words * weight).sum(dim=1) / weight.sum(dim=1)
    return torch.cat([visual.flatten(1), mean, proprio.to(words.dtype)], dim=-1)
