"""Tiny checkpoints of real architectures, by transformers alone: `python -m tests.checkpoints qwen2_5_vl FOLDER`."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    LlamaModel,
    PI0Config,
    PI0ForConditionalGeneration,
    PI0ImageProcessor,
    PI0Processor,
    Qwen2_5_VLConfig,
    Qwen2_5_VLProcessor,
    Qwen2Config,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLConfig,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)

from mmrl.policies.text.tiny import character_tokenizer, llava_parts, special_ids
from tests.policies.vla.checkpoints.openvla_checkpoint import openvla
from tests.policies.vla.checkpoints.openvla_oft_checkpoint import openvla_oft

VISION_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|video_pad|>")
TEMPLATE = (
    "{% for m in messages %}{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for p in m['content'] %}"
    "{% if p['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif p['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>{% else %}{{ p['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}"
)
TEXT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,  # of 32 numbers: the smallest heads that vLLM has on a CPU
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}


MILLION = {
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
"""A language model of 1.06 M parameters with the character tokenizer."""


def _tokenizer() -> Any:
    tokenizer = character_tokenizer("<|image_pad|>", VISION_TOKENS)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def _ids(tokenizer: Any) -> dict[str, int]:
    names = {
        "image_token_id": "<|image_pad|>",
        "video_token_id": "<|video_pad|>",
        "vision_start_token_id": "<|vision_start|>",
        "vision_end_token_id": "<|vision_end|>",
    }
    return {key: tokenizer.convert_tokens_to_ids(token) for key, token in names.items()}


def qwen2_5_vl(folder: str | Path) -> Path:
    """A Qwen2.5-VL with M-RoPE and ragged patches."""
    tokenizer = _tokenizer()
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 6, 6]}
    config = Qwen2_5_VLConfig(
        text_config={**TEXT, **special_ids(tokenizer), "rope_parameters": rope, "max_window_layers": 2},
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 4,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 112,
            "out_hidden_size": TEXT["hidden_size"],
            "fullatt_block_indexes": [1],
        },
        tie_word_embeddings=True,
        **_ids(tokenizer),
    )
    size = {"shortest_edge": 28 * 28, "longest_edge": 64 * 64}
    options: dict[str, Any] = {"size": size, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    processor = Qwen2_5_VLProcessor(
        Qwen2VLImageProcessor(**options), tokenizer, Qwen2VLVideoProcessor(**options), chat_template=TEMPLATE
    )
    return _saved(config, processor, folder)


def qwen3_vl(folder: str | Path) -> Path:
    """A Qwen3-VL: interleaved M-RoPE, deep-stacked vision features."""
    tokenizer = _tokenizer()
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [6, 5, 5], "mrope_interleaved": True}
    config = Qwen3VLConfig(
        text_config={**TEXT, **special_ids(tokenizer), "head_dim": 32, "rope_parameters": rope},
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 4,
            "patch_size": 8,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": TEXT["hidden_size"],
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
        },
        tie_word_embeddings=True,
        **_ids(tokenizer),
    )
    size = {"shortest_edge": 16 * 16, "longest_edge": 64 * 64}
    options: dict[str, Any] = {"size": size, "patch_size": 8, "temporal_patch_size": 2, "merge_size": 2}
    processor = Qwen3VLProcessor(
        Qwen2VLImageProcessor(**options), tokenizer, Qwen3VLVideoProcessor(**options), chat_template=TEMPLATE
    )
    return _saved(config, processor, folder)


def qwen2(folder: str | Path, **changes: Any) -> Path:
    """A Qwen2 of a million parameters, tied; `changes` are arguments of its configuration."""
    tokenizer = character_tokenizer()
    return _saved(Qwen2Config(**{**MILLION, **special_ids(tokenizer), **changes}), tokenizer, folder)


def qwen2_sliding(folder: str | Path) -> Path:
    """A Qwen2 whose upper two layers see the last 16 tokens only."""
    return qwen2(folder, use_sliding_window=True, sliding_window=16, max_window_layers=2)


def llava(folder: str | Path) -> Path:
    """A LLaVA with the same language model, to which an image is 196 tokens."""
    vision = {
        "model_type": "siglip_vision_model",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 112,
        "patch_size": 8,
        "vision_use_head": False,
    }
    config, processor = llava_parts({"text_config": {"model_type": "qwen2", **MILLION}, "vision_config": vision})
    return _saved(config, processor, folder)


def pi0(folder: str | Path, image_size: int = 56, chunk_size: int = 8, **changes: Any) -> Path:
    """A pi0 that thinks 8 control steps ahead in 8 dimensions; `changes` are arguments of its configuration."""
    tokenizer: Any = character_tokenizer()
    patch, width = 14, 32
    square = {"height": image_size, "width": image_size}
    images = PI0ImageProcessor(
        size={f"max_{side}": image_size for side in square},
        pad_size=square,
        image_seq_length=(image_size // patch) ** 2,
    )
    processor = PI0Processor(images, tokenizer, max_state_dim=16, chunk_size=chunk_size)  # adds tokens
    heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 8}
    text = {"model_type": "gemma", "hidden_size": width, "intermediate_size": 64, **heads, **special_ids(tokenizer)}
    vision = {
        "model_type": "siglip_vision_model",
        "hidden_size": width,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": image_size,
        "patch_size": patch,
        "vision_use_head": False,
    }
    config = PI0Config(
        vlm_config={
            "model_type": "paligemma",
            "text_config": {**text, "initializer_range": width**-0.5},  # the usual 0.02 suits widths of thousands
            "vision_config": vision,
            "projection_dim": width,
            "image_token_id": processor.image_token_id,
        },
        dit_config={
            "model_type": "gemma",
            "hidden_size": 48,
            "intermediate_size": 96,
            "initializer_range": 48**-0.5,
            **heads,
        },
        **{"chunk_size": chunk_size, "max_state_dim": 16, "max_action_dim": 8, **changes},
    )
    return _saved(config, processor, folder, PI0ForConditionalGeneration)


def smolvla(folder: str | Path, **changes: Any) -> Path:
    """A SmolVLA as lerobot publishes it, with three of four language layers; `changes` are entries of config.json.

    The folder smolvlm2/ has configuration and tokenizer of the vision-language model, which config.json names.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer: Any = character_tokenizer("<image>", ("<fake_token_around_image>", "<global-img>"))
    vlm_config = SmolVLMConfig(
        text_config={
            "model_type": "llama",
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "rms_norm_eps": 1e-5,
            "initializer_range": 32**-0.5,
            **special_ids(tokenizer),
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 64,
            "patch_size": 16,
        },
        scale_factor=2,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        pad_token_id=tokenizer.pad_token_id,
    )
    vlm_config.save_pretrained(folder / "smolvlm2")
    tokenizer.save_pretrained(folder / "smolvlm2")
    feature = {"observation.state": ("STATE", [13]), "observation.images.image": ("VISUAL", [3, 32, 32])}
    config = {
        "type": "smolvla",
        "n_obs_steps": 1,
        "normalization_mapping": {"VISUAL": "IDENTITY", "STATE": "MEAN_STD", "ACTION": "MEAN_STD"},
        "input_features": {name: {"type": kind, "shape": shape} for name, (kind, shape) in feature.items()},
        "output_features": {"action": {"type": "ACTION", "shape": [3]}},
        "device": "cpu",
        "chunk_size": 8,
        "n_action_steps": 8,
        "max_state_dim": 16,
        "max_action_dim": 8,
        "resize_imgs_with_padding": [64, 64],
        "vlm_model_name": str(folder / "smolvlm2"),
        "num_vlm_layers": 3,
        **changes,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=4))
    weights = {f"model.{name}": value for name, value in _smolvla_weights(vlm_config, config).items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _smolvla_weights(vlm_config: Any, config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Random weights with the names and shapes of the published checkpoint, without the prefix `model.`."""
    torch.manual_seed(0)
    text = copy.deepcopy(vlm_config.text_config)
    wide, keys = text.hidden_size, text.num_key_value_heads * text.head_dim
    narrow = int(wide * config.get("expert_width_multiplier", 0.75))
    vlm = SmolVLMForConditionalGeneration(vlm_config)
    vlm.model.text_model.layers = vlm.model.text_model.layers[: config["num_vlm_layers"]]
    text.hidden_size, text.intermediate_size, text.num_hidden_layers = narrow, 256, config["num_vlm_layers"]
    expert: Any = LlamaModel(text)
    expert.embed_tokens = None
    for layer in expert.layers[1::2]:
        layer.self_attn.k_proj, layer.self_attn.v_proj = (nn.Linear(keys, keys, bias=False) for _ in range(2))
    heads = {
        "state_proj": nn.Linear(config["max_state_dim"], wide),
        "action_in_proj": nn.Linear(config["max_action_dim"], narrow),
        "action_out_proj": nn.Linear(narrow, config["max_action_dim"]),
        "action_time_mlp_in": nn.Linear(2 * narrow, narrow),
        "action_time_mlp_out": nn.Linear(narrow, narrow),
    }
    parts = {"vlm_with_expert.vlm": vlm, "vlm_with_expert.lm_expert": expert, **heads}
    return {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}


def _saved(config: Any, processor: Any, folder: str | Path, kind: Any = None) -> Path:
    torch.manual_seed(0)
    sees = hasattr(processor, "image_processor")
    kind = kind or (AutoModelForImageTextToText if sees else AutoModelForCausalLM)
    model = kind._from_config(config) if hasattr(kind, "_from_config") else kind.from_config(config)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return Path(folder)


if __name__ == "__main__":
    from tests.policies.vla.checkpoints.pi_checkpoints import pi0_fast, pi05

    makers = (qwen2, qwen2_sliding, llava, qwen2_5_vl, qwen3_vl, pi0, smolvla, pi05, pi0_fast, openvla, openvla_oft)
    kinds: dict[str, Any] = {make.__name__: make for make in makers}
    if len(sys.argv) != 3 or sys.argv[1] not in kinds:
        raise SystemExit(f"usage: python -m tests.checkpoints {{{','.join(kinds)}}} FOLDER")
    print(kinds[sys.argv[1]](sys.argv[2]))
