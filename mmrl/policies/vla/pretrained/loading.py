"""Units, frozen parts and adapters of a VLA that is loaded from a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from mmrl.files.strict_json import read_json_object
from mmrl.policies.processor import Processor
from mmrl.policies.text.checks.adapted_layers import list_unadaptable
from mmrl.policies.text.loading import add_lora, remove_noise
from mmrl.policies.vla.pretrained.reading import PretrainedReading

OWN, EXTRA = "mmrl_policy.json", "mmrl_heads.safetensors"
"""Files of this project in an export: class and processor, and the modules beside the pretrained model."""


def resolve_processor(file: Path, reading: PretrainedReading, given: Processor | None) -> Processor:
    """Return the processor saved in `file`; without the file the given one with the scales of the statistics."""
    where = f"policy.path={file.parent}"
    if file.is_file():
        saved = read_json_object(file, "save the policy there again").get("processor")
        return Processor.resolve(given, saved, where)
    return Processor.with_statistics(given, reading.units(), where)


def freeze(model: nn.Module, parts: Iterable[nn.Module]) -> nn.Module:
    """Freeze the parts that are not trained and remove dropout; return the model."""
    for part in parts:
        part.requires_grad_(False)
    return remove_noise(model)


def add_lora_to_open(model: nn.Module, lora: dict[str, Any] | None, whole: Sequence[nn.Module] = ()) -> nn.Module:
    """Add adapters to the linear layers that are not frozen; None leaves the model unchanged.

    Args:
        model: to change.
        lora: arguments of `peft.LoraConfig`.
        whole: parts without adapters, all of whose weights are trained.
    """
    if lora is None:
        return model
    apart = {inner for part in whole for inner in part.modules()}
    layers = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear) and m not in apart}
    others = list_unadaptable(model)
    open_layers = [name for name, layer in layers.items() if layer.weight.requires_grad and name not in others]
    adapted = add_lora(model, {"target_modules": open_layers, **lora})
    for part in whole:
        part.requires_grad_(True)
    return adapted
