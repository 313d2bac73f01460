"""Conditional U-Net over control steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from mmrl.policies.vla.diffusion_policy.settings import DiffusionSettings


class LevelEmbedding(nn.Module):
    """Sine and cosine of the noise level at geometrically spaced frequencies from 1 to 1/10000: [M] -> [M, D]."""

    def __init__(self, dims: int):
        super().__init__()
        self.rates = dims // 2

    def forward(self, level: Tensor) -> Tensor:
        rate = torch.exp(torch.arange(self.rates, device=level.device) * -(math.log(10_000) / (self.rates - 1)))
        angle = level[:, None] * rate
        return torch.cat([angle.sin(), angle.cos()], dim=-1)


class ConvolutionBlock(nn.Module):
    """Convolution over control steps, GroupNorm and Mish: [M, C, S] -> [M, C', S]."""

    def __init__(self, inputs: int, outputs: int, kernel_size: int, groups: int):
        super().__init__()
        convolution = nn.Conv1d(inputs, outputs, kernel_size, padding=kernel_size // 2)
        self.block = nn.Sequential(convolution, nn.GroupNorm(groups, outputs), nn.Mish())

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x)


class ConditionalResidualBlock(nn.Module):
    """Two convolution blocks with FiLM between them: channels are scaled and shifted by functions of the condition.

    Source: Perez et al., "FiLM", 2018, arXiv:1709.07871.
    """

    def __init__(self, inputs: int, outputs: int, condition_dims: int, settings: DiffusionSettings):
        super().__init__()
        self.scales = settings.use_film_scale_modulation
        self.conv1 = ConvolutionBlock(inputs, outputs, settings.kernel_size, settings.n_groups)
        self.cond_encoder = nn.Sequential(nn.Mish(), nn.Linear(condition_dims, outputs * (2 if self.scales else 1)))
        self.conv2 = ConvolutionBlock(outputs, outputs, settings.kernel_size, settings.n_groups)
        self.residual_conv = nn.Identity() if inputs == outputs else nn.Conv1d(inputs, outputs, 1)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Compute [M, C', S] from x [M, C, S] and the condition [M, G]."""
        hidden, film = self.conv1(x), self.cond_encoder(condition)[..., None]
        if self.scales:
            scale, shift = film.chunk(2, dim=1)
            hidden = scale * hidden + shift
        else:
            hidden = hidden + film
        return self.conv2(hidden) + self.residual_conv(x)


class ConditionalUNet(nn.Module):
    """Predict the noise in x [M, S, A] at a level, given features of the observations.

    The number of control steps is halved between levels of the U-Net and doubled again; blocks of equal length are
    joined. Source: Chi et al., "Diffusion Policy", 2023, section III-A, arXiv:2303.04137; Janner et al., "Planning with
    Diffusion for Flexible Behavior Synthesis", 2022, arXiv:2205.09991.

    Args:
        settings: of the checkpoint.
        features: G, width of the observations' features.
    """

    def __init__(self, settings: DiffusionSettings, features: int):
        super().__init__()
        width, dims = settings.diffusion_step_embed_dim, list(settings.down_dims)
        layers = (nn.Linear(width, 4 * width), nn.Mish(), nn.Linear(4 * width, width))
        self.diffusion_step_encoder = nn.Sequential(LevelEmbedding(width), *layers)
        self._condition, self._settings = width + features, settings
        actions = settings.features.action_dims
        down = list(pairwise([actions, *dims]))
        self.down_modules = nn.ModuleList(
            self._level(inputs, outputs, nn.Conv1d(outputs, outputs, 3, 2, 1) if i + 1 < len(down) else nn.Identity())
            for i, (inputs, outputs) in enumerate(down)
        )
        self.mid_modules = nn.ModuleList(self._block(dims[-1], dims[-1]) for _ in range(2))
        self.up_modules = nn.ModuleList(
            self._level(2 * inputs, outputs, nn.ConvTranspose1d(outputs, outputs, 4, 2, 1))
            for inputs, outputs in pairwise(reversed(dims))
        )
        last = ConvolutionBlock(dims[0], dims[0], settings.kernel_size, groups=8)
        self.final_conv = nn.Sequential(last, nn.Conv1d(dims[0], actions, 1))

    def _block(self, inputs: int, outputs: int) -> ConditionalResidualBlock:
        return ConditionalResidualBlock(inputs, outputs, self._condition, self._settings)

    def _level(self, inputs: int, outputs: int, resample: nn.Module) -> nn.ModuleList:
        return nn.ModuleList([self._block(inputs, outputs), self._block(outputs, outputs), resample])

    def forward(self, x: Tensor, level: Tensor, features: Tensor) -> Tensor:
        """Compute the noise [M, S, A] from x [M, S, A], levels [M] of 0 .. L - 1 and features [M, G]."""
        condition = torch.cat([self.diffusion_step_encoder(level), features], dim=-1)
        x, joined = x.transpose(1, 2), []
        for first, second, halve in _triples(self.down_modules):
            x = second(first(x, condition), condition)
            joined.append(x)
            x = halve(x)
        for block in self.mid_modules:
            x = block(x, condition)
        for first, second, double in _triples(self.up_modules):
            x = torch.cat([x, joined.pop()], dim=1)
            x = double(second(first(x, condition), condition))
        return self.final_conv(x).transpose(1, 2)


def _triples(levels: nn.ModuleList) -> Sequence[Sequence[nn.Module]]:
    return [list(cast(nn.ModuleList, level)) for level in levels]
