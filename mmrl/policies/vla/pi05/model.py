"""Modules of pi0.5 under the names of lerobot's checkpoints."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import pad, silu
from transformers import PaliGemmaForConditionalGeneration

from mmrl.files.pretrained import build_pretrained
from mmrl.policies.vla.paligemma.decoder import KeysValues, PaliGemmaDecoder
from mmrl.policies.vla.paligemma.weights import EXPERT, Shapes, expert_config, need_shape, vlm_config
from mmrl.policies.vla.pi05.expert import GemmaExpert, expert_layer
from mmrl.policies.vla.pretrained.flow.time_embedding import embed_time


class PaliGemmaWithExpert(nn.Module):
    """PaliGemma, and the action expert: a narrower Gemma of as many layers.

    Args:
        shapes: of the checkpoint's weights.
        attention: transformers attention implementation of the image encoder.
    """

    def __init__(self, shapes: Shapes, attention: str):
        super().__init__()
        config = vlm_config(shapes, tied=True)
        self.paligemma: Any = build_pretrained(PaliGemmaForConditionalGeneration, config, attn_implementation=attention)
        self.gemma_expert = GemmaExpert(expert_config(shapes), shapes.get(f"{EXPERT}.lm_head.weight", (0,))[0])


class Pi05(PaliGemmaDecoder):
    """pi0.5: images and the prompt with the state are the context; the expert reads its keys and values.

    The action tokens attend to the context and to each other. The time enters by the norms of the expert.
    Source: Physical Intelligence, "pi0.5", 2025, appendix E, arXiv:2504.16054.

    Args:
        shapes: of the checkpoint's weights.
        config: of config.json.
        attention: transformers attention implementation of the image encoder.
    """

    def __init__(self, shapes: Shapes, config: dict[str, Any], attention: str):
        super().__init__()
        self.config = config
        self.paligemma_with_expert = PaliGemmaWithExpert(shapes, attention)
        inner, dims = need_shape(shapes, "action_in_proj.weight")
        self.action_in_proj, self.action_out_proj = nn.Linear(dims, inner), nn.Linear(inner, dims)
        self.time_mlp_in, self.time_mlp_out = nn.Linear(inner, inner), nn.Linear(inner, inner)

    @property
    def expert(self) -> Any:
        """Return the action expert without its output layer."""
        return self.paligemma_with_expert.gemma_expert.model

    def embed_condition(self, time: Tensor) -> Tensor:
        """Embed times [M] as the condition [M, width] of the expert's norms."""
        periods = self.config.get("min_period", 4e-3), self.config.get("max_period", 4.0)
        moment = embed_time(time, self.time_mlp_in.in_features, *periods).to(self.time_mlp_in.weight.dtype)
        return silu(self.time_mlp_out(silu(self.time_mlp_in(moment))))

    def run_expert(self, x: Tensor, time: Tensor, mask: Tensor, context: KeysValues) -> Tensor:
        """Run the expert on noisy actions x [M, S, D] at times [M], given the context's mask [M, K], keys, values."""
        hidden, condition = self.action_in_proj(x), self.embed_condition(time)
        steps = hidden.shape[1]
        positions = mask.cumsum(dim=1)[:, -1:] + mask.new_ones(1, steps).cumsum(dim=1) - 1
        joint = pad(mask, (0, steps), value=True)[:, None].expand(-1, steps, -1)
        for layer, (keys, values) in zip(self.expert.layers, context, strict=True):
            hidden = self.run_layer(expert_layer, layer, hidden, positions, joint, keys, values, condition)
        return self.expert.norm(hidden, condition)[0]
