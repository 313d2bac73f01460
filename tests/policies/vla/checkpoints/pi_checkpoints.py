"""Tiny checkpoints of the pi models in lerobot's format, with the names and shapes of the published files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import nn
from transformers import GemmaConfig, GemmaForCausalLM, PaliGemmaConfig, PaliGemmaForConditionalGeneration

from mmrl.policies.text.tiny import character_tokenizer
from mmrl.policies.vla.pi0_fast.fast_tokenizer import FastTokenizer


def pi05(folder: str | Path, **changes: Any) -> Path:
    """A pi0.5 as lerobot publishes it, of two layers; `changes` are entries of config.json.

    The folder paligemma/ has the tokenizer, which policy_preprocessor.json names.
    """
    folder = Path(folder)
    torch.manual_seed(0)
    weights = _paligemma_weights() | _expert_weights(width=24, dims=8)
    write_pi_folder(folder, {"type": "pi05", **changes}, weights)
    return folder


PI_CONFIG = {
    "n_obs_steps": 1,
    "normalization_mapping": {"VISUAL": "IDENTITY", "STATE": "QUANTILES", "ACTION": "QUANTILES"},
    "input_features": {
        "observation.state": {"type": "STATE", "shape": [13]},
        "observation.images.image": {"type": "VISUAL", "shape": [3, 32, 32]},
    },
    "output_features": {"action": {"type": "ACTION", "shape": [3]}},
    "device": "cpu",
    "chunk_size": 8,
    "n_action_steps": 8,
    "max_state_dim": 16,
    "max_action_dim": 8,
    "image_resolution": [56, 56],
}


def pi0_fast(folder: str | Path, **changes: Any) -> Path:
    """A pi0-FAST as lerobot publishes it, of two layers; `changes` are entries of config.json.

    The folder paligemma/ has the text tokenizer, fast/ an action tokenizer that is fitted to smooth random chunks.
    """
    folder = Path(folder)
    torch.manual_seed(0)
    own = {"type": "pi0_fast", "action_tokenizer_name": str(folder / "fast"), "fast_skip_tokens": 8}
    scales = {"normalization_mapping": {"VISUAL": "IDENTITY", "STATE": "MEAN_STD", "ACTION": "MEAN_STD"}}
    write_pi_folder(folder, {**own, **scales, "max_decoding_steps": 40, **changes}, _paligemma_weights())
    action_tokenizer().save(folder / "fast")
    return folder


def action_tokenizer() -> FastTokenizer:
    """FAST tokenizer of chunks of 8 control steps, fitted to smooth ones, to noise and to the extremes."""
    rng = np.random.default_rng(1)
    rough = [*rng.uniform(-1, 1, (400, 8, 3)), *np.repeat(np.linspace(-1, 1, 61)[:, None, None], 8, 1)]
    return FastTokenizer.fit([*smooth_chunks(200, 8, 3), *rough], vocabulary=200, scale=5)


def smooth_chunks(count: int, steps: int, dims: int, seed: int = 0) -> list[np.ndarray]:
    """Random chunks [steps, dims] in [-1, 1] of two low frequencies."""
    rng = np.random.default_rng(seed)
    time = np.linspace(0, np.pi, steps)[:, None]
    parts = rng.uniform(-0.5, 0.5, (count, 2, 1, dims))
    return [(a * np.cos(time) + b).astype(np.float32) for a, b in parts]


def text_tokenizer() -> Any:
    """Tokenizer of characters, with 480 words after them whose ids are free for action tokens."""
    tokenizer: Any = character_tokenizer("<image>")
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    content["model"]["vocab"] |= {f"<free{i}>": len(tokenizer) + i for i in range(480)}
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(content))
    return tokenizer


def write_pi_folder(folder: Path, config: dict[str, Any], weights: dict[str, torch.Tensor]) -> None:
    """Write a checkpoint of a pi model whose names have no prefix, as those on the hub."""
    folder.mkdir(parents=True, exist_ok=True)
    text_tokenizer().save_pretrained(folder / "paligemma")
    (folder / "config.json").write_text(json.dumps(PI_CONFIG | config, indent=4))
    step = {"registry_name": "tokenizer_processor", "config": {"tokenizer_name": str(folder / "paligemma")}}
    (folder / "policy_preprocessor.json").write_text(json.dumps({"name": "policy_preprocessor", "steps": [step]}))
    named = {f"paligemma_with_expert.{name}": value for name, value in weights.items() if "gemma" in name}
    save_file(named | {n: v for n, v in weights.items() if "gemma" not in n}, folder / "model.safetensors")


def _paligemma_weights(words: int = 600) -> dict[str, torch.Tensor]:
    """Random weights of a PaliGemma of two layers under the names of older transformers, the output layer tied."""
    heads = {"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 4}
    config = PaliGemmaConfig(
        text_config={
            "model_type": "gemma",
            "hidden_size": 32,
            "intermediate_size": 64,
            "vocab_size": words,
            "initializer_range": 32**-0.5,
            **heads,
        },
        vision_config={
            "model_type": "siglip_vision_model",
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 16,
            "image_size": 56,
            "patch_size": 14,
            "vision_use_head": False,
        },
        projection_dim=32,
    )
    state = PaliGemmaForConditionalGeneration(config).state_dict()
    del state["model.language_model.embed_tokens.weight"]  # the output layer is the same weight
    return {f"paligemma.{k.replace('vision_tower.', 'vision_tower.vision_model.')}": v for k, v in state.items()}


def _expert_weights(width: int, dims: int, words: int = 600) -> dict[str, torch.Tensor]:
    """Random weights of an expert of pi0.5 and of the projections around it."""
    body = GemmaForCausalLM(
        GemmaConfig(
            hidden_size=width,
            intermediate_size=64,
            vocab_size=words,
            initializer_range=width**-0.5,
            **{"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 4},
        )
    ).state_dict()
    weights = {f"gemma_expert.{name}": value for name, value in body.items() if "embed_tokens" not in name}
    for name in [name for name in weights if "norm.weight" in name]:
        norm = name.removesuffix("weight") + "dense"
        del weights[name]
        weights[f"{norm}.weight"] = torch.randn(3 * width, width) * width**-0.5
        weights[f"{norm}.bias"] = torch.randn(3 * width) * 0.3
    parts = {"action_in_proj": (dims, width), "action_out_proj": (width, dims)}
    for name, sizes in (parts | {"time_mlp_in": (width, width), "time_mlp_out": (width, width)}).items():
        weights |= {f"{name}.{key}": value for key, value in nn.Linear(*sizes).state_dict().items()}
    return weights
