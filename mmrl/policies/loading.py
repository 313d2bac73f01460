"""Checkpoints in, adapters on, merged weights out."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn


@contextmanager
def checkpoint_error(path: str) -> Iterator[None]:
    """Say which checkpoint could not be read, and what to do."""
    if _is_folder(path) and not Path(path).is_dir():
        raise ValueError(
            f"policy.path={path!r}: no such folder. Give a folder written by save_pretrained with its tokenizer or "
            "processor, or a hub id such as Qwen/Qwen2.5-0.5B-Instruct"
        )
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(
            f"policy.path={path!r} cannot be loaded: {first}. Give a folder written by save_pretrained with its "
            "tokenizer or processor, or a hub id that this machine can reach"
        ) from error


def _is_folder(path: str) -> bool:
    """Whether a path cannot be a hub id, NAME or OWNER/NAME."""
    return not path.strip() or path.startswith((".", "/", "~")) or path.count("/") > 1


def without_dropout(model: nn.Module) -> nn.Module:
    """The model with every dropout at zero.

    A policy is learnt from the probabilities that it acted by; with dropout in the learn step alone, the ratio of an
    unchanged policy would not be one.
    """
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for name, value in vars(module).items():  # transformers passes some of them on as numbers
            if name.endswith("dropout") and isinstance(value, float):
                setattr(module, name, 0.0)
    return model


def adapted(model: nn.Module, lora: dict[str, Any] | None) -> nn.Module:
    """The model with low-rank adapters as its only trainable weights; unchanged for None."""
    if lora is None:
        return model
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(**{"r": 16, "target_modules": "all-linear", **lora}))


def merged(model: Any) -> Any:
    """The plain transformers model, adapters folded into a copy of the weights."""
    if not hasattr(model, "merge_and_unload"):
        return model
    return copy.deepcopy(model).merge_and_unload()
