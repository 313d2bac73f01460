"""Value function of policies that read an image, an instruction and a proprioceptive state."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class StateValue(nn.Module):
    """Value function V(s) [N]: the expected return of a state.

    Args:
        features: width of its input.
        hidden_size: of its two hidden layers.
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


def image_text_state(visual: Tensor, words: Tensor, present: Tensor, proprio: Tensor) -> Tensor:
    """Build critic features [N, K D + D + P]: image tokens [N, K, D], mean word embedding, proprioception."""
    weight = present[..., None].to(words.dtype)
    mean = (words * weight).sum(dim=1) / weight.sum(dim=1)
    return torch.cat([visual.flatten(1), mean, proprio.to(words.dtype)], dim=-1)
