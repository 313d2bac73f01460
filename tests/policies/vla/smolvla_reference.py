"""SmolVLA computed from the weights of a folder in one pass over context and actions, without a cache."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import linear, silu
from transformers import AutoConfig, SmolVLMForConditionalGeneration

PATH = "model.vlm_with_expert."


class Reference:
    """The published architecture at the sizes of `tests.checkpoints.smolvla`: layer 1 of 3 is a cross-attention."""

    def __init__(self, folder: str | Path):
        self.weights = load_file(Path(folder) / "model.safetensors")
        config = AutoConfig.from_pretrained(Path(folder) / "smolvlm2")
        config.text_config.num_hidden_layers = 3
        self.vlm = SmolVLMForConditionalGeneration(config).eval()
        vlm = {n.removeprefix(f"{PATH}vlm."): w for n, w in self.weights.items() if n.startswith(f"{PATH}vlm.")}
        self.vlm.load_state_dict(vlm)

    def apply(self, name: str, x: Tensor) -> Tensor:
        return linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def norm(self, name: str, x: Tensor) -> Tensor:
        return x / (x.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * self.weights[f"{name}.weight"]

    def velocity(self, pixels: Tensor, ids: Tensor, state: Tensor, x: Tensor, time: float) -> Tensor:
        """One row: pixels [3, 64, 64] in [-1, 1], ids [L], state [16], x [8, 8]; returns [8, 8]."""
        model = self.vlm.model
        image = model.connector(model.vision_model(pixels[None]).last_hidden_state)[0]
        words = self.weights[f"{PATH}vlm.model.text_model.embed_tokens.weight"][ids]
        context = torch.cat([torch.cat([image, words]) * 32**0.5, self.apply("model.state_proj", state)[None]])
        periods = 4e-3 * 1000 ** torch.linspace(0, 1, 12, dtype=torch.float64)
        angle = 2 * torch.pi * time / periods
        moment = torch.cat([angle.sin(), angle.cos()]).float().expand(8, -1)
        actions = torch.cat([self.apply("model.action_in_proj", x), moment], dim=1)
        actions = self.apply("model.action_time_mlp_out", silu(self.apply("model.action_time_mlp_in", actions)))
        length = len(context)
        seen = torch.ones(length + 8, length + 8).tril().bool()
        seen[: length - 1, : length - 1] = True  # images and words, without the state
        for number in range(3):
            context, actions = self.layer(number, context, actions, seen)
        return self.apply("model.action_out_proj", self.norm(f"{PATH}lm_expert.norm", actions))

    def layer(self, number: int, context: Tensor, actions: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        wide, narrow = f"{PATH}vlm.model.text_model.layers.{number}", f"{PATH}lm_expert.layers.{number}"
        length, positions = len(context), torch.arange(len(context) + 8)
        here, there = self.norm(f"{wide}.input_layernorm", context), self.norm(f"{narrow}.input_layernorm", actions)
        query, key = (rotated(self.heads(f"{wide}.self_attn.{n}_proj", here), positions[:length]) for n in "qk")
        value = self.heads(f"{wide}.self_attn.v_proj", here)
        out = attention(query, key, value, seen[:length, :length])
        if number == 1:
            own_query = rotated(self.heads(f"{narrow}.self_attn.q_proj", there), positions[:8])
            pair = (
                self.heads(f"{narrow}.self_attn.{n}_proj", part.flatten(1)) for n, part in (("k", key), ("v", value))
            )
            own = attention(own_query, *pair, seen[length:, :length])
        else:
            own_query, own_key = (
                rotated(self.heads(f"{narrow}.self_attn.{n}_proj", there), positions[length:]) for n in "qk"
            )
            own_value = self.heads(f"{narrow}.self_attn.v_proj", there)
            own = attention(own_query, torch.cat([key, own_key]), torch.cat([value, own_value]), seen[length:])
        return self.finish(wide, context, out), self.finish(narrow, actions, own)

    def heads(self, name: str, x: Tensor) -> Tensor:
        return self.apply(name, x).unflatten(1, (-1, 8))

    def finish(self, layer: str, x: Tensor, out: Tensor) -> Tensor:
        x = x + self.apply(f"{layer}.self_attn.o_proj", out)
        y = self.norm(f"{layer}.post_attention_layernorm", x)
        gate, up = self.apply(f"{layer}.mlp.gate_proj", y), self.apply(f"{layer}.mlp.up_proj", y)
        return x + self.apply(f"{layer}.mlp.down_proj", silu(gate) * up)


def rotated(x: Tensor, positions: Tensor) -> Tensor:
    """Each pair (i, i + 4) of a head's 8 numbers is turned by position / 10000 ** (i / 4)."""
    out = x.clone()
    for i in range(4):
        turn = torch.polar(torch.ones(len(positions)), positions / 10_000 ** (i / 4))[:, None]
        pair = torch.complex(x[..., i], x[..., i + 4]) * turn
        out[..., i], out[..., i + 4] = pair.real, pair.imag
    return out


def attention(query: Tensor, key: Tensor, value: Tensor, seen: Tensor) -> Tensor:
    """Four query heads, of which each two share a key head."""
    found = []
    for head in range(4):
        scores = (query[:, head] @ key[:, head // 2].T / 8**0.5).masked_fill(~seen, -torch.inf)
        found.append(scores.softmax(dim=1) @ value[:, head // 2])
    return torch.cat(found, dim=1)
