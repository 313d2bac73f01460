"""Modules that OpenVLA-OFT adds to OpenVLA, under the names of its published files."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, relu

from mmrl.policies.vla.openvla.model import OpenVLA
from mmrl.policies.vla.openvla.settings import OpenVLASettings

Head = Literal["tokens", "regression", "diffusion"]


class TokenProjector(nn.Module):
    """Perceptron from numbers [..., features] to tokens [..., width]: of proprioception, and of noisy actions."""

    def __init__(self, features: int, width: int):
        super().__init__()
        self.fc1 = nn.Linear(features, width)
        self.fc2 = nn.Linear(width, width)

    def forward(self, numbers: Tensor) -> Tensor:
        return self.fc2(gelu(self.fc1(numbers)))


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


class NoiseHead(nn.Module):
    """Noise [A] in every control step of a noisy chunk, from the features of its A tokens."""

    def __init__(self, action_dims: int, width: int):
        super().__init__()
        self.noise_predictor = nn.ModuleDict(
            {"mlp_resnet": ResidualPerceptron(action_dims * width, width, action_dims)}
        )

    def forward(self, features: Tensor) -> Tensor:
        """Compute noise [N, H, A] from features [N, H, A * width]."""
        return self.noise_predictor["mlp_resnet"](features)


class OpenVLAOFT(OpenVLA):
    """OpenVLA that decodes a chunk in one pass, from placeholders at the places of the action tokens.

    Source: Kim et al., "OpenVLA-OFT", 2025, section 4, arXiv:2502.19645.

    Args:
        settings: of the checkpoint.
        attention: transformers attention implementation of the language model.
        proprio_dims: length of the proprioception vector; 0 without one.
        head: what a chunk is read from: logits of the action tokens, or numbers or their noise that a head predicts.
        action_dims: A, for the head.
    """

    def __init__(
        self,
        settings: OpenVLASettings,
        attention: str,
        proprio_dims: int = 0,
        head: Head = "tokens",
        action_dims: int = 0,
    ):
        super().__init__(settings, attention)
        width, heads = settings.text_config.hidden_size, {"regression": RegressionHead, "diffusion": NoiseHead}
        self.proprio_projector: Any = TokenProjector(proprio_dims, width) if proprio_dims else None
        self.action_head: Any = heads[head](action_dims, width) if head in heads else None
        self.noisy_action_projector: Any = TokenProjector(1, width) if head == "diffusion" else None

    def embed_stop(self, rows: int, stop_id: int) -> Tensor:
        """Embed the end token: [rows, 1, width]."""
        embed = self.language_model.model.embed_tokens
        return embed(torch.full((rows, 1), stop_id, device=embed.weight.device))

    def embed_noisy(self, x: Tensor, timestep: Tensor) -> tuple[Tensor, Tensor]:
        """Embed noisy chunks x [M, H, A] and timesteps [M]: tokens [M, H * A, width] and [M, 1, width]."""
        dtype = self.noisy_action_projector.fc1.weight.dtype
        actions = self.noisy_action_projector(x.flatten(1)[..., None].to(dtype))
        return actions, embed_timestep(timestep, actions.shape[2]).to(dtype)[:, None]


def embed_timestep(timestep: Tensor, width: int) -> Tensor:
    """Compute sines and cosines [M, width] of timesteps [M] with wavelengths from 2 pi to 20,000 pi."""
    half = width // 2
    frequency = torch.exp(torch.arange(half, device=timestep.device) * (-math.log(10_000) / (half - 1)))
    angle = timestep[:, None].float() * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1)
