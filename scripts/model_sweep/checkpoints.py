"""Tiny checkpoints with decided random weights, in transformers' format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from mmrl.policies.text.tiny import character_tokenizer, special_ids
from scripts.model_sweep.configs import tiny_config
from scripts.model_sweep.overrides import NOT_TINY
from scripts.model_sweep.processors import build_processor

LARGEST = 3_000_000
"""Parameters of a tiny checkpoint at most."""
FACTOR, NOISE = 4.0, 0.05
"""Weights are multiplied, so that distributions are decided, and drawn a little from the usual zeros and ones."""
AUTO_MODELS: dict[str, Any] = {"text": AutoModelForCausalLM, "image": AutoModelForImageTextToText}


class NotTinyError(Exception):
    """No tiny checkpoint of a model type can be built; the message is the reason."""


def build_checkpoint(kind: str, family: str, folder: Path) -> None:
    """Save a tiny checkpoint of a model type with its tokenizer or processor.

    Args:
        kind: model type of transformers.
        family: "text" or "image".

    Raises:
        NotTinyError: transformers itself does not build or run it at a tiny size.
    """
    if reason := NOT_TINY.get(kind):
        raise NotTinyError(reason)
    if family == "text":
        tokenizer = character_tokenizer()
        config, saved = tiny_config(kind, special_ids(tokenizer)), tokenizer
    else:
        config, saved = build_processor(kind)
    try:
        model = build_model(config, family)
    except Exception as error:
        raise NotTinyError(f"transformers does not build it: {type(error).__name__}: {error}") from error
    model.save_pretrained(folder)
    saved.save_pretrained(folder)


def build_model(config: Any, family: str) -> Any:
    """Build the model with weights that differ from the usual constants and decide its distributions."""
    torch.manual_seed(0)
    auto = AUTO_MODELS[family]
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in auto.from_config(config).parameters())
    if size > LARGEST:
        raise NotTinyError(f"{size:,} parameters at the smallest size that was tried")
    model = auto.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.mul_(FACTOR if parameter.dim() > 1 else 1.0).add_(torch.randn_like(parameter) * NOISE)
    return model
