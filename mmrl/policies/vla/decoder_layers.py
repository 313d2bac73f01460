"""Attention layers on the weights of transformers' Llama and Gemma layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

MAX_WAVELENGTH = 10_000
"""Base of the rotary position embedding: Gemma's, and SmolVLA's whatever its language model was pretrained with."""


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Apply the rotary position embedding to x [N, L, heads, d] at positions [N, L], in float32."""
    half = x.shape[-1] // 2
    exponents = torch.arange(half, dtype=torch.float32, device=x.device) * (2.0 / x.shape[-1])
    angle = positions[..., None, None].float() / MAX_WAVELENGTH**exponents
    first, second = x.float().split(half, dim=-1)
    sin, cos = angle.sin(), angle.cos()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Compute grouped-query attention.

    Args:
        query: [N, L, heads, d].
        key: [N, K, groups, d].
        value: [N, K, groups, d].
        mask: [N, L, K] True where a query attends to a key; every query needs one.

    Returns:
        [N, L, heads * d].
    """
    repeats = query.shape[2] // key.shape[2]
    query, key, value = (
        part.repeat_interleave(count, dim=2).transpose(1, 2)
        for part, count in ((query, 1), (key, repeats), (value, repeats))
    )
    out = scaled_dot_product_attention(query, key, value.to(query.dtype), attn_mask=mask[:, None])
    return out.transpose(1, 2).flatten(2)


def run_layer(function: Callable[..., Any], layer: Any, *arguments: Any, recompute: bool = False) -> Any:
    """Call `function(layer, *arguments)` as the layer's forward, so that the layer's hooks run.

    FSDP2 gathers the weights of a layer in its hooks.

    Args:
        function: computes the layer's output from its weights, instead of transformers' forward.
        layer: of transformers.
        arguments: further ones of the function.
        recompute: in the backward pass, instead of storing activations (gradient checkpointing).
    """
    if recompute and torch.is_grad_enabled():
        return checkpoint(run_layer, function, layer, *arguments, use_reentrant=False)
    layer.forward = partial(function, layer)
    try:
        return layer(*arguments)
    finally:
        del layer.forward


class DecoderModel(nn.Module):
    """Base of models that call the layers of their decoders one by one.

    Attributes:
        checkpoints_layers: recompute each layer in the backward pass, instead of storing activations.
    """

    checkpoints_layers = False

    def run_layer(self, function: Callable[..., Any], layer: Any, *arguments: Any) -> Any:
        """Call `function(layer, *arguments)` as `run_layer` does, with this model's gradient checkpointing."""
        return run_layer(function, layer, *arguments, recompute=self.checkpoints_layers)


def self_attention_layer(
    layer: Any, hidden: Tensor, positions: Tensor, mask: Tensor, keys: Tensor | None, values: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a layer whose tokens attend to earlier keys and values and to themselves.

    Args:
        layer: of transformers' Llama or Gemma.
        hidden: [N, L, width].
        positions: [N, L] of the tokens.
        mask: [N, L, K + L].
        keys: [N, K, groups, d] with positions applied; None for K = 0.
        values: [N, K, groups, d].

    Returns:
        hidden [N, L, width], and the keys and values [N, L, groups, d] of these tokens.
    """
    query, own_keys, own_values = project_heads(layer, layer.input_layernorm(hidden), ("q_proj", "k_proj", "v_proj"))
    query, own_keys = rotate(query, positions), rotate(own_keys, positions)
    all_keys = own_keys if keys is None else torch.cat([keys.to(own_keys.dtype), own_keys], dim=1)
    all_values = own_values if values is None else torch.cat([values.to(own_values.dtype), own_values], dim=1)
    return _finish(layer, hidden, attend(query, all_keys, all_values, mask)), own_keys, own_values


def cross_attention_layer(
    layer: Any, hidden: Tensor, positions: Tensor, mask: Tensor, keys: Tensor, values: Tensor
) -> Tensor:
    """Run an expert layer whose tokens attend to the context's keys and values alone, projected once more.

    Args:
        layer: of transformers' Llama; its k_proj and v_proj read keys and values of the language model.
        hidden: [N, L, width].
        positions: [N, L] of the queries.
        mask: [N, L, K].
        keys: [N, K, groups, d] of the language model's layer, with positions applied.
        values: [N, K, groups, d].
    """
    dtype = layer.self_attn.k_proj.weight.dtype
    (query,) = project_heads(layer, layer.input_layernorm(hidden), ("q_proj",))
    (key,) = project_heads(layer, keys.flatten(2).to(dtype), ("k_proj",))
    (value,) = project_heads(layer, values.flatten(2).to(dtype), ("v_proj",))
    return _finish(layer, hidden, attend(rotate(query, positions), key, value, mask))


def project_heads(layer: Any, x: Tensor, names: tuple[str, ...]) -> tuple[Tensor, ...]:
    """Apply projections to x [N, L, width] and separate the heads: each [N, L, heads, d]."""
    return tuple(getattr(layer.self_attn, name)(x).unflatten(-1, (-1, layer.self_attn.head_dim)) for name in names)


def _finish(layer: Any, hidden: Tensor, attention: Tensor) -> Tensor:
    """Add the attention output [N, L, heads * d] and the MLP to the residual stream."""
    hidden = hidden + layer.self_attn.o_proj(attention)
    return hidden + layer.mlp(layer.post_attention_layernorm(hidden))
