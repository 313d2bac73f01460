"""Action expert of pi0.5: a Gemma whose norms the time scales, shifts and gates."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import GemmaConfig, GemmaModel

from mmrl.policies.vla.decoder_layers import attend, project_heads, rotate


class AdaptiveRMSNorm(nn.Module):
    """RMSNorm with the scale, the shift and a gate of a condition (adaRMS), like the adaptive LayerNorm of DiT.

    normalised(x) * (1 + scale) + shift, with (scale, shift, gate) a linear function of the condition; the gate
    multiplies what the layer adds to the residual stream.
    Source: Physical Intelligence, "pi0.5", 2025, appendix E, arXiv:2504.16054; Peebles and Xie, "DiT", 2022,
    section 3.2, arXiv:2212.09748.

    Args:
        width: of x and of the condition.
        eps: added to the mean square.
    """

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.eps = eps
        self.dense = nn.Linear(width, 3 * width)

    def forward(self, x: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """Normalise x [M, S, width] given the condition [M, width]; return it and the gate [M, 1, width]."""
        scale, shift, gate = self.dense(condition.to(self.dense.weight.dtype))[:, None].chunk(3, dim=-1)
        high = x.float()
        normalised = high * torch.rsqrt(high.square().mean(dim=-1, keepdim=True) + self.eps)
        return (normalised * (1 + scale.float()) + shift.float()).to(x.dtype), gate.to(x.dtype)


class GemmaExpert(nn.Module):
    """Gemma layers with adaptive norms, under the names `model` and `lm_head` of lerobot's checkpoints.

    Args:
        config: of the expert.
        words: rows of the output layer, which nothing reads; 0 for a checkpoint without it.
    """

    def __init__(self, config: GemmaConfig, words: int):
        super().__init__()
        body: Any = GemmaModel(config)
        body.embed_tokens = None
        for layer in body.layers:
            layer.input_layernorm = AdaptiveRMSNorm(config.hidden_size, config.rms_norm_eps)
            layer.post_attention_layernorm = AdaptiveRMSNorm(config.hidden_size, config.rms_norm_eps)
        body.norm = AdaptiveRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.model = body
        self.lm_head = nn.Linear(config.hidden_size, words, bias=False) if words else None


def expert_layer(
    layer: Any, hidden: Tensor, positions: Tensor, mask: Tensor, keys: Tensor, values: Tensor, condition: Tensor
) -> Tensor:
    """Run a layer whose tokens attend to the context and to each other.

    Args:
        layer: of `GemmaExpert`.
        hidden: [M, S, width].
        positions: [M, S].
        mask: [M, S, K + S].
        keys: [M, K, groups, d] of the context, with positions applied.
        values: [M, K, groups, d].
        condition: [M, width].
    """
    normal, gate = layer.input_layernorm(hidden, condition)
    query, own_keys, own_values = project_heads(layer, normal, ("q_proj", "k_proj", "v_proj"))
    query, own_keys = rotate(query, positions), rotate(own_keys, positions)
    all_keys = torch.cat([keys.to(own_keys.dtype), own_keys], dim=1)
    all_values = torch.cat([values.to(own_values.dtype), own_values], dim=1)
    hidden = hidden + layer.self_attn.o_proj(attend(query, all_keys, all_values, mask)) * gate
    normal, gate = layer.post_attention_layernorm(hidden, condition)
    return hidden + layer.mlp(normal) * gate
