"""Modules of SmolVLA under the names of lerobot's checkpoints."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from transformers import LlamaModel, SmolVLMForConditionalGeneration

from mmrl.files.pretrained import build_pretrained
from mmrl.policies.vla.decoder_layers import DecoderModel, cross_attention_layer, self_attention_layer
from mmrl.policies.vla.pretrained.flow.time_embedding import embed_time
from mmrl.policies.vla.smolvla.settings import SmolVLASettings


class VLMWithExpert(nn.Module):
    """SmolVLM2 with the first layers of its language model, and the expert: a narrower Llama without embeddings.

    Args:
        settings: of the checkpoint.
        vlm_config: of transformers, of the whole vision-language model.
        attention: transformers attention implementation of the image encoder.
    """

    def __init__(self, settings: SmolVLASettings, vlm_config: Any, attention: str):
        super().__init__()
        vlm_config = copy.deepcopy(vlm_config)
        text = vlm_config.text_config
        if settings.num_vlm_layers > 0:
            text.num_hidden_layers = min(settings.num_vlm_layers, text.num_hidden_layers)
        self.vlm: Any = build_pretrained(SmolVLMForConditionalGeneration, vlm_config, attn_implementation=attention)
        narrow = copy.deepcopy(text)
        narrow.hidden_size = int(text.hidden_size * settings.expert_width_multiplier)
        narrow.intermediate_size = expert_intermediate_size(narrow.hidden_size)
        narrow.vocab_size, narrow.pad_token_id = 1, None
        expert: Any = LlamaModel(narrow)
        expert.embed_tokens = None
        width = text.num_key_value_heads * text.head_dim
        for number, layer in enumerate(expert.layers):
            if not settings.attends_to_actions(number):
                layer.self_attn.k_proj = nn.Linear(width, width, bias=text.attention_bias)
                layer.self_attn.v_proj = nn.Linear(width, width, bias=text.attention_bias)
        self.lm_expert: Any = expert


class SmolVLA(DecoderModel):
    """SmolVLA: image, text and state tokens are the context; the expert reads the context's keys and values.

    Image and text tokens attend to each other, the state token attends to them and itself, an action token attends
    to the context and, in some layers, to the action tokens up to itself.
    Source: Shukor et al., "SmolVLA", 2025, section 3, arXiv:2506.01844.

    Args:
        settings: of the checkpoint.
        vlm_config: of transformers, of the whole vision-language model.
        attention: transformers attention implementation of the image encoder.
    """

    def __init__(self, settings: SmolVLASettings, vlm_config: Any, attention: str = "sdpa"):
        super().__init__()
        self.settings = settings
        self.vlm_with_expert = VLMWithExpert(settings, vlm_config, attention)
        inner = self.vlm_with_expert.lm_expert.config.hidden_size
        self.state_proj = nn.Linear(settings.max_state_dim, vlm_config.text_config.hidden_size)
        self.action_in_proj = nn.Linear(settings.max_action_dim, inner)
        self.action_out_proj = nn.Linear(inner, settings.max_action_dim)
        self.action_time_mlp_in = nn.Linear(2 * inner, inner)
        self.action_time_mlp_out = nn.Linear(inner, inner)

    @property
    def text_model(self) -> Any:
        """Return the language model."""
        return self.vlm_with_expert.vlm.model.text_model

    def embed_context(self, input_ids: Tensor, pixels: Tensor) -> Tensor:
        """Embed images [N, cameras, 3, h, w] and token ids [N, L], images first: [N, cameras * patches + L, width]."""
        vlm = self.vlm_with_expert.vlm.model
        features = vlm.vision_model(pixel_values=pixels.flatten(0, 1)).last_hidden_state
        images = vlm.connector(features).unflatten(0, pixels.shape[:2]).flatten(1, 2)
        words = vlm.text_model.embed_tokens(input_ids)
        return torch.cat([images.to(words.dtype), words], dim=1) * words.shape[-1] ** 0.5

    def run_vlm(
        self, hidden: Tensor, positions: Tensor, mask: Tensor, before: list[tuple[Tensor, Tensor]] | None = None
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Run the language model's layers on tokens [N, L, width] that follow those of `before`.

        Returns:
            The normalised features [N, L, width], and keys and values of every layer, each [N, L, groups, d].
        """
        pairs: list[tuple[Tensor, Tensor]] = []
        for number, layer in enumerate(self.text_model.layers):
            past = (None, None) if before is None else before[number]
            hidden, *pair = self.run_layer(self_attention_layer, layer, hidden, positions, mask, *past)
            pairs.append((pair[0], pair[1]))
        return self.text_model.norm(hidden), pairs

    def run_expert(self, hidden: Tensor, mask: Tensor, context: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Run the expert on action tokens [M, S, width], given the context's mask [M, K], keys and values."""
        steps = torch.arange(hidden.shape[1], device=hidden.device)[None].expand(len(hidden), -1)
        across = mask[:, None].expand(-1, hidden.shape[1], -1)
        earlier = (steps[:, :, None] >= steps[:, None]).to(across.dtype)
        joint, after = torch.cat([across, earlier], dim=2), steps + mask.sum(dim=1, keepdim=True)
        for number, layer in enumerate(self.vlm_with_expert.lm_expert.layers):
            if self.settings.attends_to_actions(number):
                hidden, *_ = self.run_layer(self_attention_layer, layer, hidden, after, joint, *context[number])
            else:
                hidden = self.run_layer(cross_attention_layer, layer, hidden, steps, across, *context[number])
        return self.vlm_with_expert.lm_expert.norm(hidden)

    def embed_actions(self, x: Tensor, time: Tensor) -> Tensor:
        """Embed noisy actions x [M, S, D] and times [M] as tokens [M, S, width]."""
        actions = self.action_in_proj(x)
        moment = embed_time(time, actions.shape[-1], self.settings.min_period, self.settings.max_period)
        moment = moment.to(actions.dtype)[:, None].expand_as(actions)
        return self.action_time_mlp_out(silu(self.action_time_mlp_in(torch.cat([actions, moment], dim=2))))


def expert_intermediate_size(width: int, multiple: int = 256) -> int:
    """Return the expert's MLP width: 8/3 of its width, rounded up to a multiple of 256."""
    size = 4 * (2 * width // 3)
    return multiple * -(-size // multiple)
