"""SmolVLA in two halves: the vision-language model encodes the context, the expert denoises actions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import AutoConfig

from mmrl.files.pretrained import load_pretrained
from mmrl.policies.vla.chains.base import Prefix
from mmrl.policies.vla.lerobot.files import CONFIG, REMEDY, WEIGHTS, need_file
from mmrl.policies.vla.pretrained.flow.network import ContextEncoding, FlowVLANetwork, Sizes
from mmrl.policies.vla.smolvla.model import SmolVLA
from mmrl.policies.vla.smolvla.settings import read_settings, vlm_source
from mmrl.policies.weights import fill, read_weights

_PREFIX = "model."  # of the network's weights in a checkpoint
_TIED = ("vlm_with_expert.vlm.lm_head.weight", "vlm_with_expert.vlm.model.text_model.embed_tokens.weight")


class SmolVLANetwork(FlowVLANetwork):
    """The two halves of a `SmolVLA`. The state token is read apart, after images and text, which do not attend to it.

    So with a frozen context only the state token's way through the language model is recorded for `state_proj`, which
    learns.
    """

    @classmethod
    def load(cls, path: str, reader: str | None, horizon: int | None, dtype: str, attention: str) -> nn.Module:
        settings = read_settings(path, horizon)
        vlm_config = load_pretrained(AutoConfig, vlm_source(path, reader, settings))
        model = SmolVLA(settings, vlm_config, attention).to(getattr(torch, dtype))
        if torch.get_default_device().type == "meta":
            return model
        file = need_file(path, WEIGHTS)
        fill(model, network_weights(read_weights(file, REMEDY)), str(file))
        return model.train()

    @staticmethod
    def save(model: Any, folder: Path) -> None:
        weights = {
            f"{_PREFIX}{name}": value.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, value in model.state_dict().items()
        }
        save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
        (folder / CONFIG).write_text(json.dumps(model.settings.to_json(), indent=4) + "\n")

    @property
    def sizes(self) -> Sizes:
        settings, widths = (
            self.model.settings,
            (self.model.state_proj.out_features, self.model.action_in_proj.out_features),
        )
        return Sizes(settings.chunk_size, settings.max_action_dim, settings.max_state_dim, *widths)

    @property
    def dtype(self) -> torch.dtype:
        return self.model.state_proj.weight.dtype

    @property
    def context(self) -> Any:
        return self.model.vlm_with_expert.vlm

    @property
    def vision(self) -> Sequence[nn.Module]:
        return self.context.model.vision_model, self.context.model.connector

    @property
    def unused(self) -> Sequence[nn.Module]:
        return (self.context.lm_head,)  # no text is generated

    def read(self, inputs: Mapping[str, Tensor]) -> ContextEncoding:
        trains = any(weight.requires_grad for weight in self.context.parameters())
        with torch.set_grad_enabled(torch.is_grad_enabled() and trains):
            embedded = self.model.embed_context(inputs["input_ids"], inputs["pixel_values"])
            words = inputs["attention_mask"].bool()
            mask = pad(words, (embedded.shape[1] - words.shape[1], 0), value=True)  # images come first
            # padding attends to real tokens too, so that no row of the attention is empty
            pairwise = mask[:, None].expand(-1, mask.shape[1], -1)
            hidden, pairs = self.model.run_vlm(embedded, (mask.cumsum(dim=1) - 1).clamp(min=0), pairwise)
        layers = [part for pair in pairs for part in pair]
        # the last layer's attention output is unused; this keeps its weights in the graph
        layers[-1] = layers[-1] + 0 * hidden.sum()
        return ContextEncoding(mask, layers, hidden)

    def add_state(self, context: ContextEncoding, state: Tensor) -> Prefix:
        mask, pairs = context.mask, list(zip(context.layers[::2], context.layers[1::2]))
        filled = pad(state, (0, self.model.settings.max_state_dim - state.shape[1])).to(self.dtype)
        token = self.model.state_proj(filled)[:, None]
        mask_with_state = pad(mask, (0, 1), value=True)
        last, state_pairs = self.model.run_vlm(token, mask.sum(dim=1, keepdim=True), mask_with_state[:, None], pairs)
        layers = [
            torch.cat([before.to(after.dtype), after], dim=1)
            for pair in zip(pairs, state_pairs)
            for before, after in zip(*pair)
        ]
        layers[-1] = layers[-1] + 0 * last.sum()  # as in `read`
        return (mask_with_state, *layers)

    def decode_actions(self, prefix: Prefix, x: Tensor, time: Tensor) -> Tensor:
        mask, *layers = prefix
        tokens = self.model.embed_actions(x.to(self.dtype), time)
        return self.model.run_expert(tokens, mask, list(zip(layers[::2], layers[1::2])))

    def velocity(self, features: Tensor) -> Tensor:
        return self.model.action_out_proj(features)

    def enable_gradient_checkpointing(self) -> None:
        self.model.checkpoints_layers = True
        self.context.model.vision_model.gradient_checkpointing_enable({"use_reentrant": False})


def network_weights(given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Select the network's weights of a checkpoint and remove the prefix of their names.

    Statistics of older checkpoints, saved among the weights, are left out, and the prefix of torch.compile is removed.
    Word embeddings and output layer may be one weight, saved under one of its two names.
    """
    weights = {
        name.removeprefix(_PREFIX).removeprefix("_orig_mod."): value
        for name, value in given.items()
        if name.startswith(_PREFIX)
    }
    for name, other in (_TIED, _TIED[::-1]):
        if name not in weights and other in weights:
            weights[name] = weights[other]
    return weights
