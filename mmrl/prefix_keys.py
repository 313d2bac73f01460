"""Merge several groups of named tensors under prefixes, and split them again."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


def add_prefix(prefix: str, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors to "<prefix>/<name>", detached."""
    return {f"{prefix}/{name}": part.detach() for name, part in parts.items()}


def strip_prefix(prefix: str, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of one prefix, with the prefix removed: the inverse of `add_prefix`."""
    return {name.removeprefix(f"{prefix}/"): part for name, part in parts.items() if name.startswith(f"{prefix}/")}
