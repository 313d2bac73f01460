"""Linear layers on which low-rank adapters would not be what is merged: found by their code and by one pass."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from mmrl.policies.quantization import QuantizedLinear

READ = re.compile(r"(?<!isinstance\()\bself\.(\w+)\.weight\b(?!\.(?:dtype|device|shape|data)\b|\[)")
"""A module's code that takes the weight of a layer, in place of the layer's output."""
OTHER_OUTPUT = "its outputs are not x W^T + b"
READ_WEIGHT = "its block reads the weight itself, as kernels for recurrent layers do, and leaves the adapter out"


def list_unadaptable(model: nn.Module) -> dict[str, str]:
    """List the linear layers that cannot have adapters: y = x W^T + B A x has to be what W + B A computes.

    Returns:
        Reasons by name of the layer.
    """
    reasons, measured = {}, dict[tuple[Any, ...], bool]()
    for path, block in model.named_modules():
        for name, layer in block.named_children():
            if not isinstance(layer, nn.Linear) or isinstance(layer, QuantizedLinear):
                continue
            place = f"{path}.{name}".lstrip(".")
            if type(layer).forward is not nn.Linear.forward:
                key = type(layer), layer.weight.shape
                measured[key] = measured[key] if key in measured else _is_linear(layer)
                if not measured[key]:
                    reasons[place] = OTHER_OUTPUT
            if name in _list_read(type(block)):
                reasons[place] = READ_WEIGHT
    return reasons


def choose_targets(model: nn.Module, lora: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of `peft.LoraConfig` that leave out layers which cannot have adapters.

    Args:
        model: without adapters.
        lora: arguments; without `target_modules` all linear layers get adapters.

    Raises:
        ValueError: `target_modules` names layers none of which can have one.
    """
    from peft import LoraConfig
    from peft.tuners.tuners_utils import check_target_module_exists

    arguments = {"r": 16, "target_modules": "all-linear", **lora}
    reasons, others = list_unadaptable(model), set[str]()
    if str(arguments["target_modules"]).lower() == "all-linear":
        others = _list_numbered(model)
    elif reasons:
        config = LoraConfig(**arguments)
        # peft answers with a match of a pattern, or with False for what is excluded
        linears = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
        selected = [name for name in linears if check_target_module_exists(config, name)]
        adaptable = {name.rpartition(".")[2] for name in selected if name not in reasons}
        for name in selected:
            if (last := name.rpartition(".")[2]) not in adaptable:
                kind = getattr(getattr(model, "config", None), "model_type", type(model).__name__)
                raise ValueError(
                    f"policy.lora.target_modules: {name} of {kind} cannot have an adapter, because {reasons[name]}; "
                    f"leave {last} out, or target_modules: then all layers that can get adapters"
                )
    excluded = arguments.get("exclude_modules") or []
    if (others := others | reasons.keys()) and isinstance(excluded, str):
        arguments["exclude_modules"] = "|".join([f"(?:{excluded})", *map(re.escape, sorted(others))])
    elif others:
        arguments["exclude_modules"] = sorted({*excluded, *others})
    return arguments


def _list_numbered(model: nn.Module) -> set[str]:
    """List blocks with the number of a linear layer, such as `layers.0` beside `mlp.0`.

    Of some mixtures of experts peft takes the last parts of names alone, which both have in common.
    """
    numbered = {name: layer for name, layer in model.named_modules() if name.rpartition(".")[2].isdigit()}
    linears = {name.rpartition(".")[2] for name, layer in numbered.items() if isinstance(layer, nn.Linear)}
    return {
        name
        for name, layer in numbered.items()
        if not isinstance(layer, nn.Linear) and name.rpartition(".")[2] in linears
    }


def _is_linear(layer: nn.Linear) -> bool:
    """Whether a class with a `forward` of its own computes x W^T + b, tried with random weights."""
    with torch.device("cpu"), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        probe = object.__new__(type(layer))
        probe.__dict__ = {**layer.__dict__, "_parameters": dict(layer._parameters)}
        for name, weight in layer._parameters.items():
            if weight is not None:
                probe._parameters[name] = nn.Parameter(torch.randn(weight.shape))
        inputs = torch.randn(2, layer.in_features)
        try:
            outputs = probe(inputs)
        except Exception:  # it takes other shapes
            return False
        expected = nn.functional.linear(inputs, probe.weight, probe.bias)
        same = isinstance(outputs, torch.Tensor) and outputs.shape == expected.shape
        return same and torch.allclose(outputs, expected, rtol=1e-4, atol=1e-4)


@functools.cache
def _list_read(kind: type[nn.Module]) -> frozenset[str]:
    """Names of children whose weight the code of a class reads outside of its initialisation."""
    read = set[str]()
    for part in kind.__mro__[: kind.__mro__.index(nn.Module)]:
        for name, function in vars(part).items():
            if inspect.isfunction(function) and "init" not in name and "reset" not in name:
                try:
                    read |= set(READ.findall(inspect.getsource(function)))
                except OSError:  # code that is in no file
                    continue
    return frozenset(read)
