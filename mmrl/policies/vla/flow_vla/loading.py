"""Checks, units and frozen parts of a flow VLA that is loaded from a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from mmrl.policies.processor import Processor
from mmrl.policies.text.loading import add_lora, remove_dropout
from mmrl.policies.vla.action_padding import ActionPadding
from mmrl.policies.vla.flow_vla.network import FlowVLANetwork, FlowVLAReading, Sizes
from mmrl.strict_json import read_json_object


def action_padding(sizes: Sizes, action_dims: int, chunk: int, proprio_dims: int) -> ActionPadding | None:
    """Return the padding between the simulator's chunk and the model's state; None if they are equal.

    Raises:
        ValueError: the simulator needs more than the checkpoint has.
    """
    for word, given, most, name in (
        ("action_dims", action_dims, sizes.action_dims, "max_action_dim"),
        ("chunk", chunk, sizes.horizon, "chunk_size (policy.horizon)"),
        ("proprio_dims", proprio_dims, sizes.state_dims, "max_state_dim"),
    ):
        if not 1 <= given <= most:
            raise ValueError(f"policy.{word}={given}, but the checkpoint's {name} is {most}")
    padding = ActionPadding(chunk, action_dims, sizes.horizon, sizes.action_dims)
    return padding if padding.entries_per_step else None


def resolve_processor(file: Path, reading: FlowVLAReading, given: Processor | None) -> Processor:
    """Return the given processor, or the one saved in `file`, or that of the checkpoint's statistics."""
    if file.is_file():
        saved = read_json_object(file, "save the policy there again").get("processor")
    else:
        units = reading.units()
        saved = None if units is None else units.to_dict()
    return Processor.resolve(given, saved, f"policy.path={file.parent}")


def freeze(network: FlowVLANetwork, freeze_vision: bool, freeze_context: bool) -> nn.Module:
    """Freeze the parts that are not trained and remove dropout; return the model."""
    for part in network.unused:
        part.requires_grad_(False)
    if freeze_context:
        network.context.requires_grad_(False)
    if freeze_vision:
        for part in network.vision:
            part.requires_grad_(False)
    return remove_dropout(network.model)


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
    open_layers = [name for name, layer in layers.items() if layer.weight.requires_grad]
    adapted = add_lora(model, {"target_modules": open_layers, **lora})
    for part in whole:
        part.requires_grad_(True)
    return adapted
