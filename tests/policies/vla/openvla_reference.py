"""OpenVLA computed from its equations for one row at a time: timm's blocks and Llama's layers, put together by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import gelu, linear, silu


class Reference:
    """Logits of action tokens; `causal` False lets every token attend to every other one."""

    def __init__(self, folder: str, causal: bool = True):
        self.config = json.loads((Path(folder) / "config.json").read_text())
        self.weights, self.causal = load_file(Path(folder) / "model.safetensors"), causal
        self.encoders = [self._encoder(number) for number in range(len(self.config["timm_model_ids"]))]
        self.end = self.config["text_config"]["vocab_size"] - self.config["pad_to_multiple_of"]

    def _encoder(self, number: int) -> Any:
        name = ("vision_backbone.featurizer.", "vision_backbone.fused_featurizer.")[number]
        own = {key.removeprefix(name): value for key, value in self.weights.items() if key.startswith(name)}
        size, given = self.config["image_sizes"][number], self.config["timm_model_args"][number]
        encoder = timm.create_model(self.config["timm_model_ids"][number], num_classes=0, img_size=size, **given)
        encoder.load_state_dict({key.replace("scale_factor", "gamma"): value for key, value in own.items()})
        return encoder.eval()

    def patches(self, pixels: Tensor) -> Tensor:
        """Embed an image [3 per encoder, h, w] as tokens [P, width]."""
        seen = []
        for encoder, image in zip(self.encoders, pixels.split(3)):
            x = encoder.norm_pre(encoder.patch_drop(encoder._pos_embed(encoder.patch_embed(image[None]))))
            for block in list(encoder.blocks)[:-1]:
                x = block(x)
            seen.append(x[0, encoder.num_prefix_tokens :])
        hidden = torch.cat(seen, dim=1)
        layers = [f"projector.fc{number}" for number in (1, 2, 3) if f"projector.fc{number}.weight" in self.weights]
        for number, layer in enumerate(layers):
            hidden = gelu(hidden) if number else hidden
            hidden = linear(hidden, self.weights[f"{layer}.weight"], self.weights[f"{layer}.bias"])
        return hidden

    def embed(self, ids: Tensor) -> Tensor:
        return self.weights["language_model.model.embed_tokens.weight"][ids]

    def llama(self, x: Tensor) -> Tensor:
        """Run the language model on embedded tokens [S, width]."""
        text = self.config["text_config"]
        heads, size = text["num_attention_heads"], text["hidden_size"] // text["num_attention_heads"]
        angle = torch.arange(len(x))[:, None] / 10_000 ** (torch.arange(0, size, 2) / size)
        cos, sin = (torch.cat([part, part], dim=1) for part in (angle.cos(), angle.sin()))

        def turn(part: Tensor) -> Tensor:
            first, second = part.chunk(2, dim=-1)
            return part * cos + torch.cat([-second, first], dim=-1) * sin

        for number in range(text["num_hidden_layers"]):
            own = {
                key.removeprefix(f"language_model.model.layers.{number}."): value for key, value in self.weights.items()
            }
            normed = self._norm(x, own["input_layernorm.weight"])
            q, k, v = (
                linear(normed, own[f"self_attn.{name}_proj.weight"]).unflatten(1, (heads, size)).transpose(0, 1)
                for name in "qkv"
            )
            score = turn(q) @ turn(k).transpose(1, 2) / size**0.5
            if self.causal:
                score = score.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -torch.inf)
            found = (score.softmax(dim=-1) @ v).transpose(0, 1).flatten(1)
            x = x + linear(found, own["self_attn.o_proj.weight"])
            normed = self._norm(x, own["post_attention_layernorm.weight"])
            gate, up = (linear(normed, own[f"mlp.{name}_proj.weight"]) for name in ("gate", "up"))
            x = x + linear(silu(gate) * up, own["mlp.down_proj.weight"])
        return self._norm(x, self.weights["language_model.model.norm.weight"])

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return weight * x / (x.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [T, B] of the action tokens; bin b is token end - 1 - b."""
        every = linear(hidden, self.weights["language_model.lm_head.weight"])
        return torch.stack([every[:, self.end - 1 - b] for b in range(self.config["n_action_bins"])], dim=1)

    def action_logits(self, pixels: Tensor, ids: Tensor, chosen: Tensor) -> Tensor:
        """Logits [T, B] of each action given those before it; ids [L] end with the empty token."""
        words = self.embed(torch.cat([ids, self.end - 1 - chosen[:-1]]))
        tokens = torch.cat([words[:1], self.patches(pixels), words[1:]])
        return self.logits(self.llama(tokens)[-len(chosen) :])
