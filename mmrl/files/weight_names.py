"""Present names of weights and submodules that an earlier version of the project named otherwise.

A module lists its own in `renamed_weights`: old name to new name, both relative to that module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor, nn


def current_name(module: nn.Module, name: str) -> str:
    """Return the present name of a weight or submodule that an earlier version of the project named otherwise.

    A module's `renamed_weights` maps old names to new ones; both are relative to that module. Other names stay.

    Args:
        module: the name is relative to it, as in its state_dict.
        name: dotted.
    """
    renamed: Mapping[str, str] = getattr(module, "renamed_weights", {})
    for old, new in renamed.items():
        if name == old or name.startswith(f"{old}."):
            name = new + name.removeprefix(old)
            break
    first, dot, rest = name.partition(".")
    child = module._modules.get(first)
    return name if child is None or not dot else f"{first}.{current_name(child, rest)}"


def current_names(module: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a saved state_dict under the present names; see `current_name`."""
    return {current_name(module, name): tensor for name, tensor in weights.items()}


def name_remedy(module: nn.Module, names: Iterable[str]) -> str:
    """Return the end of a message about names that the module lacks: the present names of renamed ones, or nothing."""
    renamed = [f"{name} is now {current_name(module, name)}" for name in names if current_name(module, name) != name]
    return f"; {', '.join(renamed)}" if renamed else ""
