"""ActionExpert: the network of continuous action heads, a transformer over control steps that attends to a context."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from mmrl.policies.vla.chains.base import Prefix


class ActionExpert(nn.Module):
    """Predict [M, H, A] at noisy chunks x [M, H, A] and times [M], given a context encoded once per decision.

    Token h is an MLP of (a projection of x_h, time) plus a position embedding of h. Each block attends to the tokens,
    then to the context.
    Source: pi0: A Vision-Language-Action Flow Model, 2024, appendix B, arXiv:2410.24164. Differs: the expert attends to
    the last layer of the context, by cross-attention.

    Args:
        hidden_size: width of the context and of the expert. layers: blocks. heads: attention heads.
        intermediate_size: of the blocks' MLPs. action_dims: A. chunk: H.
        predicts_std: predict a log-std too.
        reads_end_time: read the time that a transition leads to, too. Predictions then change slowly with time, because
            the loss has their derivative.
    """

    renamed_weights: ClassVar[Mapping[str, str]] = {
        "enter": "action_in_proj",
        "mix": "action_time_mlp",
        "span": "duration_proj",
        "place": "pos_embed",
        "context": "context_norm",
        "key": "cross_k_proj",
        "value": "cross_v_proj",
        "leave": "final_norm",
        "output": "action_out_proj",
    }

    def __init__(
        self,
        hidden_size: int,
        layers: int,
        heads: int,
        intermediate_size: int,
        action_dims: int,
        chunk: int,
        predicts_std: bool,
        reads_end_time: bool = False,
    ):
        super().__init__()
        d = hidden_size
        self.gradient_checkpointing = False
        self.action_in_proj = nn.Linear(action_dims, d)  # d features, as many as of time
        self.action_time_mlp = nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d))
        self.duration_proj = nn.Linear(d, d, bias=False) if reads_end_time else None
        if self.duration_proj is not None:  # initially the average velocity of a step is the velocity at its start
            nn.init.zeros_(self.duration_proj.weight)
        self.pos_embed = nn.Parameter(0.02 * torch.randn(chunk, d))
        self.context_norm = nn.LayerNorm(d)
        self.cross_k_proj = nn.Linear(d, layers * d, bias=False)
        self.cross_v_proj = nn.Linear(d, layers * d, bias=False)
        self.blocks = nn.ModuleList(_Block(d, heads, intermediate_size) for _ in range(layers))
        self.final_norm = nn.LayerNorm(d)
        self.action_out_proj = nn.Linear(d, action_dims)
        self.log_std = nn.Linear(d, action_dims) if predicts_std else None
        if self.log_std is not None:  # the std starts in the middle of its range
            nn.init.zeros_(self.log_std.weight)
            nn.init.zeros_(self.log_std.bias)

    def prefix(self, hidden: Tensor, present: Tensor) -> Prefix:
        """Compute keys and values [N, blocks, L, D] of the context [N, L, D]; present [N, L] bool."""
        hidden = self.context_norm(hidden)
        count = len(self.blocks)
        shape = (*hidden.shape[:2], count, hidden.shape[2])
        return (
            self.cross_k_proj(hidden).view(shape).transpose(1, 2),
            self.cross_v_proj(hidden).view(shape).transpose(1, 2),
            present,
        )

    def forward(
        self, prefix: Prefix, x: Tensor, time: Tensor, end_time: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the prediction and, if predicted, the log-std, both float32 [M, H, A]."""
        keys, values, present = prefix
        dtype = self.pos_embed.dtype
        clock = self._clock(time, end_time)[:, None].expand(-1, x.shape[1], -1)
        token = self.action_time_mlp(torch.cat([self.action_in_proj(x.to(dtype)), clock], dim=-1)) + self.pos_embed
        mask = present[:, None, None]
        for number, block in enumerate(self.blocks):
            if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
                token = checkpoint(block, token, keys[:, number], values[:, number], mask, use_reentrant=False)
            else:
                token = block(token, keys[:, number], values[:, number], mask)
        token = self.final_norm(token)
        return self.action_out_proj(token).float(), None if self.log_std is None else self.log_std(token).float()

    def _clock(self, time: Tensor, end_time: Tensor | None) -> Tensor:
        """Compute the time features [M, D] that are added to every token."""
        size, dtype = self.pos_embed.shape[1], self.pos_embed.dtype
        if self.duration_proj is None:
            return time_features(time, size).to(dtype)
        length = torch.zeros_like(time) if end_time is None else time - end_time
        clock, span = (time_features(value, size, SLOW).to(dtype) for value in (time, length))
        return clock + self.duration_proj(span)


SLOW = 0.5  # shortest period of time features whose derivative is in the loss


def time_features(time: Tensor, size: int, shortest: float = 0.004) -> Tensor:
    """Compute sines and cosines [M, size] of time in [0, 1], with log-spaced periods from the shortest to 4."""
    share = torch.linspace(0, 1, size // 2, device=time.device)
    angle = 2 * math.pi * time.float()[:, None] / (shortest * (4 / shortest) ** share)
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


class _Block(nn.Module):
    """Pre-norm residual block: attention among the control steps, attention to the context, MLP."""

    renamed_weights: ClassVar[Mapping[str, str]] = {
        **{f"norms.{number}": f"norm{number + 1}" for number in range(3)},
        "among": "qkv_proj",
        "joined": "out_proj",
        "query": "cross_q_proj",
        "looked": "cross_out_proj",
    }

    def __init__(self, d: int, heads: int, intermediate_size: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d) for _ in range(3))
        self.qkv_proj = nn.Linear(d, 3 * d, bias=False)
        self.out_proj = nn.Linear(d, d, bias=False)
        self.cross_q_proj = nn.Linear(d, d, bias=False)
        self.cross_out_proj = nn.Linear(d, d, bias=False)
        self.mlp = nn.Sequential(nn.Linear(d, intermediate_size), nn.GELU(), nn.Linear(intermediate_size, d))

    def forward(self, token: Tensor, key: Tensor, value: Tensor, seen: Tensor) -> Tensor:
        q, k, v = self.qkv_proj(self.norm1(token)).chunk(3, dim=-1)
        token = token + self.out_proj(self._attend(q, k, v, None))
        token = token + self.cross_out_proj(self._attend(self.cross_q_proj(self.norm2(token)), key, value, seen))
        return token + self.mlp(self.norm3(token))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        return scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
