"""Refuse keys with empty values that the typed parser drops, and parts that are taken out but were never there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jsonargparse import Namespace
from omegaconf import DictConfig, OmegaConf

from mmrl.errors import ConfigError

_LISTED = 20  # keys that a message names


def check_empty(given: Any, parsed: Any) -> None:
    """Refuse `key={}` where no part takes the key: the typed parser flattens mappings, so an empty one leaves no trace.

    Args:
        given: nested plain values, parts as {class_path, init_args}, before they were parsed.
        parsed: the same configuration as the typed parser understood it.

    Raises:
        ConfigError: with the key and those that stand beside it.
    """
    for key, known in _vanished(given, parsed):
        parent, _, name = key.rpartition(".")
        listed = ", ".join(known[:_LISTED]) + (", ..." if len(known) > _LISTED else "")
        raise ConfigError(
            f"{parent or 'configuration'}: unknown key {name!r} (its value is {{}}). It takes {listed or 'no key'}"
        )


def _vanished(given: Any, parsed: Any, key: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield the keys of empty mappings that were not parsed, with the keys that were."""
    if isinstance(given, Mapping) and "class_path" in given:
        part = _entries(parsed)
        if part.get("class_path", given["class_path"]) != given["class_path"]:
            return  # another argument chose another class
        given, parsed = given.get("init_args") or {}, part.get("init_args", parsed)
    if isinstance(given, Mapping):
        entries = _entries(parsed)
        for name, value in given.items():
            place = f"{key}.{name}" if key else str(name)
            # of a key that a part takes, {} is parsed to a dictionary or to the defaults of a class
            if isinstance(value, Mapping) and not value and entries.get(name, Namespace()) == Namespace():
                yield place, sorted(str(known) for known in entries if known != name)
            elif name in entries:
                yield from _vanished(value, entries[name], place)
    elif isinstance(given, list) and isinstance(parsed, list):
        for number, (one, other) in enumerate(zip(given, parsed)):
            yield from _vanished(one, other, f"{key}.{number}")


def _entries(node: Any) -> Mapping[str, Any]:
    return vars(node) if isinstance(node, Namespace) else node if isinstance(node, Mapping) else {}


def check_removed(overrides: Sequence[str], without: DictConfig, named: Sequence[str]) -> None:
    """Refuse `part.NAME=null` where there is no part NAME: a misspelt name takes nothing out.

    Args:
        overrides: Hydra's, in full keys.
        without: the configuration composed without those overrides.
        named: last parts of the keys that hold named parts, such as callbacks.

    Raises:
        ConfigError: with the names that are there.
    """
    for key in removed_parts(overrides, named):
        parent, _, name = key.rpartition(".")
        present = OmegaConf.select(without, parent, throw_on_missing=False)
        names = sorted(map(str, present)) if isinstance(present, DictConfig) else []
        if name not in names:
            raise ConfigError(f"{key}=null takes out a part that is not there; {parent} has {names}")


def removed_parts(overrides: Sequence[str], named: Sequence[str]) -> list[str]:
    """Return the keys of the named parts that overrides set to null."""
    pairs = (override.lstrip("+~").partition("=") for override in overrides)
    keys = [key for key, _, value in pairs if value == "null"]
    return [key for key in keys if key.count(".") > 1 and key.split(".")[-2] in named]
