"""pi0 of transformers in two halves: the vision-language model encodes the context, the expert denoises actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from mmrl.policies.text.cache import cache_argument
from mmrl.policies.vla.chain import Prefix


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


class Pi0Network:
    """The two halves of a `PI0ForConditionalGeneration`, called as its own forward and sampler call them.

    Time is 1 at the noise and 0 at the action, the velocity is noise - action. Image and words attend to each
    other, the state token attends to them and itself, the action tokens attend to everything.

    Args:
        model: of transformers.
    """

    def __init__(self, model: Any):
        self.model = model

    @property
    def context(self) -> nn.Module:
        """Return the vision-language model."""
        return self.model.model.vlm

    def read(self, inputs: Mapping[str, Tensor], state: Tensor) -> tuple[Prefix, Tensor]:
        """Encode the context: return the expert's cache, and the features [N, L, D] of the context's tokens.

        Args:
            inputs: input_ids and attention_mask [N, L], pixel_values [N, cameras, 3, H, W].
            state: proprioception [N, P], filled up with zeros to the model's width.
        """
        body, mask, pixels = self.model.model, inputs["attention_mask"], inputs["pixel_values"]
        cache: Any = Cache(layer_class_to_replicate=PageLayer)
        with torch.set_grad_enabled(torch.is_grad_enabled() and any(p.requires_grad for p in body.vlm.parameters())):
            seen = torch.ones(pixels.shape[:2], dtype=torch.bool, device=pixels.device)
            embedded = body.embed_prefix(inputs["input_ids"], pixels, seen)
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
        return (mask, pad(state, (0, self.model.config.max_state_dim - state.shape[1])), *layers), hidden

    def decode_actions(self, prefix: Prefix, x: Tensor, time: Tensor) -> Tensor:
        """Compute features [M, S, E] of the action tokens from noisy actions x [M, S, D] at times [M]."""
        mask, state, *layers = prefix
        dtype = self.model.action_out_proj.weight.dtype
        tokens = self.model.embed_action_time(state.to(dtype), x.to(dtype), time)
        cache = Cache(layers=[PageLayer(*pair) for pair in zip(layers[::2], layers[1::2])])
        out = self.model.model(action_embeds=tokens, attention_mask=mask, **{cache_argument(self.model.model): cache})
        return out.last_hidden_state[:, -x.shape[1] :]

    def velocity(self, found: Tensor) -> Tensor:
        """Compute the velocity [M, S, D] from the features of the action tokens."""
        return self.model.action_out_proj(found)


def enable_gradient_checkpointing(model: Any) -> None:
    """Recompute layers in the backward pass instead of storing their activations.

    By default transformers removes the cache from such layers, as its caches grow at every run; a PageLayer does not.
    """
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for part in (model.model.vlm.language_model, model.model.dit):
        for layer in part.layers:
            layer._can_checkpoint_with_cache = True
