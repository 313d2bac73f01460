"""Convert Python values and objects to the key=value arguments of `mmrl fit`."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from mmrl.api import objects
from mmrl.config.compose import SHORT
from mmrl.core.errors import ConfigError

_KEY = re.compile(r"[A-Za-z_][\w-]*")


def to_arguments(key: str, value: Any) -> Iterator[str]:
    """Convert a value to arguments: `key=value` of a plain value, one for each entry of a mapping, a class of a part.

    Args:
        key: of the configuration, as on the command line.
        value: a number, text, None, a list of them, a mapping of further keys, or an instance of a part's class.
    """
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if not isinstance(name, str):
                raise ConfigError(f"{key}: the key {name!r} must be text")
            yield from to_arguments(f"{key}.{name}", inner)
    elif is_plain(value):
        yield f"{key}={to_text(value)}"
    elif inspect.isclass(value) or inspect.isroutine(value):
        raise ConfigError(f"{key}={value!r}: give an instance of the part, a named option or a mapping of its keys")
    else:
        yield from part_arguments(key, value)


def part_arguments(key: str, part: Any) -> Iterator[str]:
    """The arguments that put an object in the place of the part at `key`.

    A dataclass of an importable module whose fields are plain is named by its class and its fields, so that the run's
    config.yaml can be run again; every other object is kept by `objects.keep_part`.
    """
    yield f"{_full(key)}=null"  # takes out the part that is there, with its arguments
    fields = _plain_fields(part)
    if fields is None:
        yield f"{key}._target_={objects.keep_part(part)}"
        return
    yield f"{key}._target_={objects.import_path(type(part))}"
    for name, value in fields.items():
        yield f"{key}.{name}={to_text(value)}"


def _plain_fields(part: Any) -> dict[str, Any] | None:
    """The constructor's arguments of a dataclass; None where they or its class cannot be written down."""
    if not dataclasses.is_dataclass(part) or objects.import_path(type(part)) is None:
        return None
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part) if field.init}
    return fields if all(map(is_plain, fields.values())) else None


def is_plain(value: Any) -> bool:
    """Whether a value is a finite number, text, None, or a list or mapping of them that Hydra can read."""
    if isinstance(value, str):
        return "${" not in value and value.isprintable() and not re.search(r"\\('|$)", value)
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(name, str) and _KEY.fullmatch(name) and is_plain(inner) for name, inner in value.items())
    return value is None or isinstance(value, bool | int)


def to_text(value: Any) -> str:
    """A plain value as Hydra's grammar reads it: text in quotes, null, true, [a, b], {key: value}."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("'", "\\'") + "'"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(to_text, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {to_text(inner)}" for name, inner in value.items()) + "}"
    return repr(value)


def _full(key: str) -> str:
    """policy.x as model.policy.x."""
    head, dot, rest = key.partition(".")
    return f"{SHORT.get(head, head)}{dot}{rest}"
