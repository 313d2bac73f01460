"""Weights that hold all experts of a layer, for adapters on them."""

from __future__ import annotations

from torch import nn

EXPERTS = "experts"
"""Value of `target_parameters` that stands for the weights of all experts."""


def list_expert_weights(model: nn.Module) -> list[str]:
    """List the ends of the names of weights that hold all experts of a layer, [experts, rows, columns].

    transformers stores the experts of a layer as two tensors, such as `mlp.experts.gate_up_proj`, which are no linear
    layers. peft gives each expert a pair of factors of its own.

    Raises:
        ValueError: the model has none.
    """
    names = {
        ".".join([*path.split(".")[-2:], name])
        for path, module in model.named_modules()
        if "expert" in path.rpartition(".")[2].lower() or "expert" in type(module).__name__.lower()
        for name, weight in module.named_parameters(recurse=False)
        if weight.dim() == 3
    }
    if not names:
        raise ValueError(
            f"policy.lora.target_parameters={EXPERTS}: {getattr(model, 'config', model).model_type} stores no experts "
            "in one tensor; leave it out: linear layers, those of experts among them, have adapters without it"
        )
    return sorted(names)
