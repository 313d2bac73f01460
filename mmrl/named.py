"""Several groups of tensors in one, and back."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


def named(prefix: str, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The numbers of some parts, as "<prefix>/<name>"."""
    return {f"{prefix}/{name}": part.detach() for name, part in parts.items()}


def under(prefix: str, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those that `named` gave this prefix."""
    return {name.removeprefix(f"{prefix}/"): part for name, part in parts.items() if name.startswith(f"{prefix}/")}
