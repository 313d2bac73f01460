"""pi0 of transformers in two halves: the vision-language model encodes the context, the expert denoises actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import Cache, PI0ForConditionalGeneration
from transformers.cache_utils import DynamicLayer

from mmrl.policies.text.cache import cache_argument
from mmrl.policies.text.loading import load_model, save_model
from mmrl.policies.vla.chains.base import Prefix
from mmrl.policies.vla.lerobot.files import WEIGHTS, find_file
from mmrl.policies.vla.paligemma.weights import read_embedding
from mmrl.policies.vla.pretrained.flow.network import ContextEncoding, FlowVLANetwork, Sizes


class PageLayer(DynamicLayer):
    """Cache layer that keeps the context's keys and values; later ones are appended for one call only.

    So any number of expert passes share one context, and a layer may run again in the backward pass.
    """

    keys: Any  # tensors, once written
    values: Any

    def __init__(self, keys: Tensor | None = None, values: Tensor | None = None):
        super().__init__()
        self.written = keys is not None
        if keys is not None and values is not None:
            self._hold(keys, values)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if self.written:
            return torch.cat([self.keys, key_states], dim=-2), torch.cat([self.values, value_states], dim=-2)
        self._hold(key_states, value_states)
        return key_states, value_states

    def _hold(self, keys: Tensor, values: Tensor) -> None:
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
        self.keys, self.values = keys, values


class Pi0Network(FlowVLANetwork):
    """The two halves of a `PI0ForConditionalGeneration`, called as its own forward and sampler call them.

    Image and words attend to each other, the state token attends to them and itself, the action tokens attend to
    everything.
    """

    tokens_axis = 2

    @classmethod
    def load(cls, path: str, reader: str | None, horizon: int | None, dtype: str, attention: str) -> nn.Module:
        unread = ("model.dit.embed_tokens", "dit.embed_tokens")  # unused by the forward pass
        changes = {} if horizon is None else {"chunk_size": horizon}
        options = {"dtype": dtype, "attn_implementation": attention, **changes}
        model = load_model(PI0ForConditionalGeneration, path, unread, **options)
        # transformers takes the output layer for the word embeddings, which lerobot 0.6 saves and trains apart from it
        file = None if model.device.type == "meta" else find_file(path, WEIGHTS)
        if file is not None and (embedding := read_embedding(file)) is not None:
            model.get_input_embeddings().weight.data.copy_(embedding)
        return model.train()  # training mode, as of new modules; transformers loads in evaluation mode

    @staticmethod
    def save(model: Any, folder: Path) -> None:
        save_model(model, folder)

    @property
    def sizes(self) -> Sizes:
        config = self.model.config
        widths = config.vlm_config.text_config.hidden_size, config.dit_config.hidden_size
        return Sizes(config.chunk_size, config.max_action_dim, config.max_state_dim, *widths)

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def context(self) -> Any:
        return self.model.model.vlm

    @property
    def vision(self) -> Sequence[nn.Module]:
        return self.context.vision_tower, self.context.multi_modal_projector

    @property
    def unused(self) -> Sequence[nn.Module]:
        return (self.model.model.dit.embed_tokens,)  # the expert reads embeddings

    def read(self, inputs: Mapping[str, Tensor]) -> ContextEncoding:
        body, mask, pixels = self.model.model, inputs["attention_mask"], inputs["pixel_values"]
        cache: Any = Cache(layer_class_to_replicate=PageLayer)
        with torch.set_grad_enabled(torch.is_grad_enabled() and any(p.requires_grad for p in body.vlm.parameters())):
            image_mask = torch.ones(pixels.shape[:2], dtype=torch.bool, device=pixels.device)
            embedded = body.embed_prefix(inputs["input_ids"], pixels, image_mask)
            hidden = body.vlm(
                inputs_embeds=embedded,
                attention_mask=mask,
                position_ids=(mask.cumsum(dim=-1) - 1).clamp(min=0),
                token_type_ids=torch.zeros_like(mask),
                use_cache=True,
                **{cache_argument(body.vlm): cache},
            ).last_hidden_state
        layers = [part for layer in cache.layers for part in (layer.keys, layer.values)]
        # the last layer's attention output is unused; this keeps its weights in the graph
        layers[-1] = layers[-1] + 0 * hidden.sum()
        return ContextEncoding(mask, layers, hidden)

    def add_state(self, context: ContextEncoding, state: Tensor) -> Prefix:
        filled = pad(state, (0, self.model.config.max_state_dim - state.shape[1]))
        return (context.mask.long(), filled, *context.layers)

    def decode_actions(self, prefix: Prefix, x: Tensor, time: Tensor) -> Tensor:
        mask, state, *layers = prefix
        dtype = self.model.action_out_proj.weight.dtype
        tokens = self.model.embed_action_time(state.to(dtype), x.to(dtype), time)
        cache = Cache(layers=[PageLayer(*pair) for pair in zip(layers[::2], layers[1::2])])
        out = self.model.model(action_embeds=tokens, attention_mask=mask, **{cache_argument(self.model.model): cache})
        return out.last_hidden_state[:, -x.shape[1] :]

    def velocity(self, features: Tensor) -> Tensor:
        return self.model.action_out_proj(features)

    def enable_gradient_checkpointing(self) -> None:
        # by default transformers removes the cache from such layers, as its caches grow at every run; a PageLayer does
        # not
        self.model.gradient_checkpointing_enable({"use_reentrant": False})
        for part in (self.context.language_model, self.model.model.dit):
            for layer in part.layers:
                layer._can_checkpoint_with_cache = True
