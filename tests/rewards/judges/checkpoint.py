"""A tiny checkpoint of a judge, whose tokenizer has the words yes and no."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from mmrl.policies.text.tiny import character_tokenizer, special_ids
from scripts.model_sweep.configs import tiny_config


def build_checkpoint(path: Path, seed: int = 0) -> str:
    """Save a random model in a folder, and return its path; heads of 32 numbers, the smallest of vLLM on a CPU."""
    tokenizer = character_tokenizer()
    tokenizer.add_tokens(["yes", "no", " Yes"])
    tokenizer.save_pretrained(path)
    torch.manual_seed(seed)
    config = Qwen2Config(
        hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        max_position_embeddings=2048, initializer_range=0.3, **{**special_ids(tokenizer), "vocab_size": len(tokenizer)},
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(path)
    return str(path)


def build_kind(kind: str, path: Path) -> str:
    """Save a random model of a type, with weights large enough for logits that differ, and return its path."""
    tokenizer = character_tokenizer()
    tokenizer.add_tokens(["yes", "no", " Yes"])
    tokenizer.save_pretrained(path)
    config = tiny_config(kind, {**special_ids(tokenizer), "vocab_size": len(tokenizer)})
    for name in ("max_position_embeddings", "n_positions"):
        if hasattr(config, name):
            setattr(config, name, 1024)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    enlarge_weights(model)
    model.save_pretrained(path)
    return str(path)


def enlarge_weights(model: torch.nn.Module) -> None:
    """Make random weights large enough for outputs that differ between rows."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4.0 if weight.ndim > 1 else 1.0).add_(0.05 * torch.randn_like(weight))
