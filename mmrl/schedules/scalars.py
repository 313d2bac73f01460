"""Read and replace one number inside a tree of parts, by its key."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from mmrl.objectives.objective import Objective

COEFFICIENTS = "coefficients"  # of an objective, which keeps them as buffers


def get_scalar(part: Any, path: Sequence[str]) -> Any:
    """Return the number at a path; a KeyError says which name a part does not have."""
    for i, name in enumerate(path):
        if isinstance(part, Objective) and name == COEFFICIENTS:
            return float(part.coefficient(path[i + 1]))
        part = _child(part, name)
    return part


def with_scalar(part: Any, path: Sequence[str], value: float) -> Any:
    """Return the part with another number at a path.

    Mappings, lists and frozen dataclasses are copied, so that their constructor checks the number; other objects are
    changed in place.
    """
    if not path:
        return value
    name, rest = path[0], path[1:]
    if isinstance(part, Objective) and name == COEFFICIENTS:
        part.coefficient(rest[0]).fill_(value)
        return part
    child = with_scalar(_child(part, name), rest, value)
    if isinstance(part, Mapping):
        return {**part, name: child}
    if isinstance(part, (list, tuple)):
        return type(part)(child if str(i) == name else item for i, item in enumerate(part))
    if not _is_frozen(part):
        setattr(part, name, child)
        return part
    if all(field.init for field in fields(part)):
        return replace(part, **{name: child})
    part = copy.copy(part)  # it keeps what it has learned; its constructor would forget that
    object.__setattr__(part, name, child)
    return part


def _child(part: Any, name: str) -> Any:
    if isinstance(part, Mapping) and name in part:
        return part[name]
    if isinstance(part, (list, tuple)) and name.isdigit() and int(name) < len(part):
        return part[int(name)]
    if not isinstance(part, (Mapping, list, tuple)) and hasattr(part, name):
        return getattr(part, name)
    raise KeyError(f"{type(part).__name__} keeps no {name!r}")


def _is_frozen(part: Any) -> bool:
    return is_dataclass(part) and type(part).__dataclass_params__.frozen  # type: ignore[attr-defined]
