"""pi0.5 in two halves: PaliGemma encodes images and prompt, the expert denoises actions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.policies.vla.chains.base import Prefix
from mmrl.policies.vla.lerobot.files import CONFIG, REMEDY, WEIGHTS, need_file, read_config
from mmrl.policies.vla.paligemma.weights import network_weights, read_shapes, save_weights
from mmrl.policies.vla.pi05.model import Pi05
from mmrl.policies.vla.pretrained.flow.network import ContextEncoding, FlowVLANetwork, Sizes
from mmrl.policies.weights import fill, read_weights

_UNSUPPORTED = ("use_relative_actions", "use_visual_memory", "use_proprioceptive_memory")


class Pi05Network(FlowVLANetwork):
    """The two halves of a `Pi05`. The state is in the prompt, so the encoder does not read it a second time."""

    @classmethod
    def load(cls, path: str, reader: str | None, horizon: int | None, dtype: str, attention: str) -> nn.Module:
        config = read_config(path, "pi05", _UNSUPPORTED)
        if horizon is not None:
            executed = min(int(config.get("n_action_steps", horizon)), horizon)
            config |= {"chunk_size": horizon, "n_action_steps": executed}
        file = need_file(path, WEIGHTS)
        model = Pi05(read_shapes(file), config, attention).to(getattr(torch, dtype))
        if torch.get_default_device().type == "meta":
            return model
        fill(model, network_weights(read_weights(file, REMEDY), model, tied=True), str(file))
        return model.train()

    @staticmethod
    def save(model: Any, folder: Path) -> None:
        save_weights(model, folder)
        (folder / CONFIG).write_text(json.dumps(model.config, indent=4) + "\n")

    @property
    def sizes(self) -> Sizes:
        config, model = self.model.config, self.model
        width = model.vlm.language_model.embed_tokens.embedding_dim
        inner, dims = model.action_in_proj.out_features, model.action_in_proj.in_features
        return Sizes(int(config.get("chunk_size", 50)), dims, int(config.get("max_state_dim", 32)), width, inner)

    @property
    def dtype(self) -> torch.dtype:
        return self.model.action_in_proj.weight.dtype

    @property
    def context(self) -> Any:
        return self.model.paligemma_with_expert.paligemma

    @property
    def vision(self) -> Sequence[nn.Module]:
        return self.model.vlm.vision_tower, self.model.vlm.multi_modal_projector

    @property
    def unused(self) -> Sequence[nn.Module]:
        head = self.model.paligemma_with_expert.gemma_expert.lm_head
        return () if head is None else (head,)  # no text is generated

    def read(self, inputs: Mapping[str, Tensor]) -> ContextEncoding:
        trains = any(weight.requires_grad for weight in self.context.parameters())
        with torch.set_grad_enabled(torch.is_grad_enabled() and trains):
            arguments = inputs["input_ids"], inputs["attention_mask"], inputs["pixel_values"]
            hidden, mask, pairs = self.model.read_context(*arguments)
        layers = [part for pair in pairs for part in pair]
        # the last layer's attention output is unused; this keeps its weights in the graph
        layers[-1] = layers[-1] + 0 * hidden.sum()
        return ContextEncoding(mask, layers, hidden)

    def add_state(self, context: ContextEncoding, state: Tensor) -> Prefix:
        return (context.mask, *context.layers)

    def decode_actions(self, prefix: Prefix, x: Tensor, time: Tensor) -> Tensor:
        mask, *layers = prefix
        return self.model.run_expert(x.to(self.dtype), time, mask, list(zip(layers[::2], layers[1::2])))

    def velocity(self, features: Tensor) -> Tensor:
        return self.model.action_out_proj(features)

    def enable_gradient_checkpointing(self) -> None:
        self.model.enable_gradient_checkpointing()
