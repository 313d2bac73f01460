"""Policies that vLLM serves, of a size that starts in seconds, and requests for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from mmrl.core.rng import derive_seed
from mmrl.core.types import Request
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.vision import VisionLanguagePolicy
from tests.checkpoints import TEXT, qwen2_5_vl

VISION = {
    "model_type": "siglip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
    "vision_use_head": False,
}
KINDS = ("qwen2", "llava", "qwen2_5_vl", "qwen3_moe", "mixtral", "olmoe")
EXPERTS = {
    "qwen3_moe": {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
}  # fmt: skip
"""Mixtures of experts, whose weights transformers stores fused and vLLM stores by kernels."""


def policy(kind: str, folder: Path, **options: Any) -> TextPolicy:
    """A policy with random weights that are far enough from zero for its choices to differ."""
    torch.manual_seed(0)
    if kind in EXPERTS:
        config = {"model_type": kind, **TEXT, "tie_word_embeddings": False, **EXPERTS[kind]}
        model: TextPolicy = TextPolicy(config=config, **options)
    elif kind == "qwen2":
        model = TextPolicy(config={"model_type": "qwen2", **TEXT}, **options)
    elif kind == "llava":
        config = {"text_config": {"model_type": "qwen2", **TEXT}, "vision_config": VISION}
        model = VisionLanguagePolicy(config=config, **options)
    else:
        model = VisionLanguagePolicy(path=str(qwen2_5_vl(folder)), **options)
    return moved(model, 3.0)


@torch.no_grad()
def moved(policy: TextPolicy, factor: float) -> TextPolicy:
    """Every matrix that learns, times a factor."""
    for parameter in policy.parameters():
        if parameter.requires_grad and parameter.dim() > 1:
            parameter.mul_(factor)
    return policy


def requests(policy: TextPolicy, groups: int = 3, group_size: int = 4) -> list[Request]:
    """Prompts of different lengths, with an image where the policy can see; a group shares one observation."""
    out = []
    for group in range(groups):
        words = f"count {group} " * (1 + 4 * group)
        content: Any = words
        images: tuple[np.ndarray, ...] = ()
        if isinstance(policy, VisionLanguagePolicy):
            images = (np.random.default_rng(group).integers(0, 256, (32 + 16 * group, 40, 3), dtype=np.uint8),)
            content = [{"type": "image"}, {"type": "text", "text": words}]
        raw = {"messages": ({"role": "user", "content": content},), "images": images}
        out += [Request(raw, derive_seed("vllm", group, index), prompt_id=group) for index in range(group_size)]
    return out
