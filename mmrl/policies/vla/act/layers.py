"""Transformer layers and position embeddings of ACT, under the names of LeRobot's checkpoints."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, relu

from mmrl.policies.vla.act.settings import ACTSettings


class TransformerLayer(nn.Module):
    """Attention and MLP, each with a residual and a LayerNorm before or after it. No dropout.

    Args:
        settings: of the checkpoint.
    """

    def __init__(self, settings: ACTSettings):
        super().__init__()
        width = settings.dim_model
        self.self_attn = nn.MultiheadAttention(width, settings.n_heads, batch_first=True)
        self.linear1 = nn.Linear(width, settings.dim_feedforward)
        self.linear2 = nn.Linear(settings.dim_feedforward, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.pre_norm, self.activation = settings.pre_norm, gelu if settings.feedforward_activation == "gelu" else relu

    def attend(self, x: Tensor, positions: Tensor, padded: Tensor | None = None) -> Tensor:
        """Self-attention of x [N, L, D]; queries and keys have `positions` added, `padded` [N, L] keys are ignored."""
        at = x + positions
        return self.self_attn(at, at, x, key_padding_mask=padded, need_weights=False)[0]

    def mlp(self, x: Tensor) -> Tensor:
        return self.linear2(self.activation(self.linear1(x)))


class EncoderLayer(TransformerLayer):
    """Self-attention and MLP."""

    def forward(self, x: Tensor, positions: Tensor, padded: Tensor | None = None) -> Tensor:
        if self.pre_norm:
            x = x + self.attend(self.norm1(x), positions, padded)
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.attend(x, positions, padded))
        return self.norm2(x + self.mlp(x))


class DecoderLayer(TransformerLayer):
    """Self-attention of the action queries, cross-attention to the encoder's tokens, and MLP."""

    def __init__(self, settings: ACTSettings):
        super().__init__(settings)
        self.norm3 = nn.LayerNorm(settings.dim_model)
        self.multihead_attn = nn.MultiheadAttention(settings.dim_model, settings.n_heads, batch_first=True)

    def forward(self, x: Tensor, tokens: Tensor, positions: Tensor, token_positions: Tensor) -> Tensor:
        if self.pre_norm:
            x = x + self.attend(self.norm1(x), positions)
            x = x + self.look(self.norm2(x), tokens, positions, token_positions)
            return x + self.mlp(self.norm3(x))
        x = self.norm1(x + self.attend(x, positions))
        x = self.norm2(x + self.look(x, tokens, positions, token_positions))
        return self.norm3(x + self.mlp(x))

    def look(self, x: Tensor, tokens: Tensor, positions: Tensor, token_positions: Tensor) -> Tensor:
        """Cross-attention of x [N, S, D] to tokens [N, L, D]."""
        return self.multihead_attn(x + positions, tokens + token_positions, tokens, need_weights=False)[0]


class Encoder(nn.Module):
    """Encoder layers, with a LayerNorm at the end if they norm before."""

    def __init__(self, settings: ACTSettings, layers: int):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(settings) for _ in range(layers))
        self.norm = nn.LayerNorm(settings.dim_model) if settings.pre_norm else nn.Identity()

    def forward(self, x: Tensor, positions: Tensor, padded: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, positions, padded)
        return self.norm(x)


class Decoder(nn.Module):
    """Decoder layers and a LayerNorm."""

    def __init__(self, settings: ACTSettings):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(settings) for _ in range(settings.n_decoder_layers))
        self.norm = nn.LayerNorm(settings.dim_model)

    def forward(self, x: Tensor, tokens: Tensor, positions: Tensor, token_positions: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, tokens, positions, token_positions)
        return self.norm(x)


def sine_embedding_1d(count: int, dims: int) -> Tensor:
    """Position embeddings [count, D]: sine and cosine of position / 10000^(2 floor(i / 2) / D) in turn.

    Source: Vaswani et al., "Attention Is All You Need", 2017, section 3.5, arXiv:1706.03762.
    """
    rate = 10_000 ** (-2 * (torch.arange(dims, dtype=torch.float64) // 2) / dims)
    return _waves(torch.arange(count, dtype=torch.float64)[:, None] * rate).float()


def sine_embedding_2d(height: int, width: int, dims: int) -> Tensor:
    """Position embeddings [h w, D] of a feature map: D / 2 numbers for the row and D / 2 for the column.

    Rows and columns are counted from 1 and scaled to (0, 2 pi].
    Source: Carion et al., "End-to-End Object Detection with Transformers", 2020, appendix A.4, arXiv:2005.12872.
    """
    half = dims // 2
    rate = 10_000 ** (2 * (torch.arange(half, dtype=torch.float32) // 2) / half)
    rows, columns = (_waves(torch.arange(1, n + 1)[:, None] / (n + 1e-6) * 2 * math.pi / rate) for n in (height, width))
    grid = (rows[:, None].expand(-1, width, -1), columns[None].expand(height, -1, -1))
    return torch.cat(grid, dim=-1).flatten(0, 1)


def _waves(angle: Tensor) -> Tensor:
    """Sine of even and cosine of odd columns."""
    even = torch.arange(angle.shape[1], device=angle.device) % 2 == 0
    return torch.where(even, angle.sin(), angle.cos())
