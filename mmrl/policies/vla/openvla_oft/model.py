"""Modules that OpenVLA-OFT adds to OpenVLA, under the names of its published files."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, relu

from mmrl.policies.vla.openvla.model import OpenVLA
from mmrl.policies.vla.openvla.settings import OpenVLASettings


class ProprioProjector(nn.Module):
    """Perceptron from proprioception [N, P] to a token [N, width]."""

    def __init__(self, proprio_dims: int, width: int):
        super().__init__()
        self.fc1 = nn.Linear(proprio_dims, width)
        self.fc2 = nn.Linear(width, width)

    def forward(self, proprio: Tensor) -> Tensor:
        return self.fc2(gelu(self.fc1(proprio)))


class ResidualBlock(nn.Module):
    """x + relu(linear(norm(x)))."""

    def __init__(self, width: int):
        super().__init__()
        self.ffn = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return x + self.ffn(x)


class ResidualPerceptron(nn.Module):
    """Two residual blocks between two linear layers, each of which reads normalised features."""

    def __init__(self, features: int, width: int, outputs: int):
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(features)
        self.fc1 = nn.Linear(features, width)
        self.mlp_resnet_blocks = nn.ModuleList(ResidualBlock(width) for _ in range(2))
        self.layer_norm2 = nn.LayerNorm(width)
        self.fc2 = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = relu(self.fc1(self.layer_norm1(x)))
        for block in self.mlp_resnet_blocks:
            x = block(x)
        return self.fc2(self.layer_norm2(x))


class RegressionHead(nn.Module):
    """Action [A] of every control step from the features of its A tokens."""

    def __init__(self, action_dims: int, width: int):
        super().__init__()
        self.model = ResidualPerceptron(action_dims * width, width, action_dims)

    def forward(self, features: Tensor) -> Tensor:
        """Compute actions [N, H, A] from features [N, H, A * width]."""
        return self.model(features)


class OpenVLAOFT(OpenVLA):
    """OpenVLA that decodes a chunk in one pass, from placeholders at the places of the action tokens.

    Source: Kim et al., "OpenVLA-OFT", 2025, section 4, arXiv:2502.19645.

    Args:
        settings: of the checkpoint.
        attention: transformers attention implementation of the language model.
        proprio_dims: length of the proprioception vector; 0 without one.
        regression_dims: A, with a head that predicts numbers; 0 without one.
    """

    def __init__(self, settings: OpenVLASettings, attention: str, proprio_dims: int = 0, regression_dims: int = 0):
        super().__init__(settings, attention)
        width = settings.text_config.hidden_size
        self.proprio_projector: Any = ProprioProjector(proprio_dims, width) if proprio_dims else None
        self.action_head: Any = RegressionHead(regression_dims, width) if regression_dims else None

    def embed_placeholders(self, rows: int, count: int, stop_id: int) -> Tensor:
        """Embed `count` placeholders, which are zero, and the end token: [rows, count + 1, width]."""
        embed = self.language_model.model.embed_tokens
        stop = embed(torch.full((rows, 1), stop_id, device=embed.weight.device))
        return torch.cat([stop.new_zeros(rows, count, stop.shape[2]), stop], dim=1)
