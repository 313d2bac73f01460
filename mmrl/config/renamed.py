"""Refuse names of earlier versions with an error that gives the present name; renamed.yaml has the table."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from mmrl.config.option_files import groups
from mmrl.core.errors import ConfigError

_TABLE = Path(__file__).with_suffix(".yaml")
_MANY = 5  # maximum number of renamed names in one message
_REFERENCE = re.compile(r"\$\{(\w+(?:\.\w+)+)\}")


@functools.cache
def load_table() -> dict[str, dict[str, Any]]:
    """Load the table of renamed names: section -> ... -> old name -> present name."""
    return yaml.load(_TABLE.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def find_new_name(section: str, *names: str) -> str | None:
    """Look up the present name of an entry in a section of the table; None if it was not renamed."""
    entry: Any = load_table()[section]
    for name in names:
        entry = entry.get(name) if isinstance(entry, Mapping) else None
    return entry if isinstance(entry, str) else None


def find_new_option(group: str, option: str) -> str | None:
    """Return the present words of an option, as start=sums; None if it was not renamed."""
    new = find_new_name("options", group, option)
    return new if new is None or "=" in new else f"{group}={new}"


def find_new_path(path: str) -> str | None:
    """Return the present import path of a moved or renamed class; None if it was not renamed."""
    module, _, name = path.rpartition(".")
    moved = find_new_name("modules", module)
    return find_new_name("classes", path) or (f"{moved}.{name}" if moved else None)


def check_argument_names(
    config: Mapping[str, Any], arguments: Sequence[str], short: Mapping[str, str] | None = None
) -> None:
    """Refuse arguments key=value with a renamed key.

    Args:
        config: changed by the arguments; a part is {_target_, ...} or {class_path, init_args}.
        arguments: key=value.
        short: expansions of the first part of a key, such as policy to model.policy.
    """
    for argument in arguments:
        key, _, value = argument.partition("=")
        key = key.lstrip("-+~").rstrip("+")
        head, dot, rest = key.partition(".")
        full = (short or {}).get(head, head)
        new = _translate(config, full + dot + rest)
        if new != full + dot + rest:
            raise ConfigError(f"{key} was renamed to {head}{new.removeprefix(full)}")
        check_names({key: value})


def check_names(config: Mapping[str, Any], where: str = "") -> None:
    """Refuse a configuration with renamed keys, classes or values.

    Args:
        config: nested plain values; a part is {_target_, ...} or {class_path, init_args}.
        where: begins the message, such as the name of the file.
    """
    messages = list(dict.fromkeys(_list_renamed(config, "", config)))
    if messages:
        more = f"; and {len(messages) - _MANY} more" if len(messages) > _MANY else ""
        raise ConfigError(where + "; ".join(messages[:_MANY]) + more)


def check_words(node: Any, key: str = "") -> None:
    """Refuse renamed options in the words of stages, before a run begins; words of a run that has ended stay."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            check_words(value, f"{key}.{name}".lstrip("."))
    elif isinstance(node, (list, tuple)):
        for value in node:
            check_words(value, key)
    elif isinstance(node, str) and (new := _new_words(node)) is not None:
        raise ConfigError(f"{key}: {node} was renamed to {new}")


def _arguments(node: Any) -> Mapping[str, Any]:
    inside = node.get("init_args", {}) if isinstance(node, Mapping) and "class_path" in node else node
    return inside if isinstance(inside, Mapping) else {}


def _path_of(node: Any) -> str | None:
    path = (node.get("_target_") or node.get("class_path")) if isinstance(node, Mapping) else None
    # class B of ${captured:A,B}; A is a subclass of B
    return path.removesuffix("}").rpartition(",")[2] if isinstance(path, str) else None


def _new_key(node: Any, key: str, name: str) -> str | None:
    """Return the present name of one key of a node at `key`; None if it was not renamed."""
    path = _path_of(node) or ""
    if (new := find_new_name("arguments", find_new_path(path) or path, name)) is not None:
        return new
    return None if _path_of(_arguments(node).get(name)) else find_new_name("parts", key, name)


def _translate(config: Mapping[str, Any], key: str) -> str:
    """Translate every renamed part of a dotted key to its present name."""
    node: Any = config
    new: list[str] = []
    for name in key.split("."):
        if name != "init_args":
            name = _new_key(node, ".".join(part for part in new if part != "init_args"), name) or name
            node = _arguments(node).get(name)
        new.append(name)
    return ".".join(new)


def _list_renamed(node: Any, key: str, config: Mapping[str, Any]) -> Iterator[str]:
    """List one sentence for every renamed key, class and value in a node."""
    name = key.rpartition(".")[2]
    if isinstance(node, Mapping):
        path = _path_of(node)
        if path is not None and (present := find_new_path(path)) is not None:
            yield f"{key}: {path} was renamed to {present}"
        for word, value in _arguments(node).items():
            if word == "_target_":
                continue
            new = _new_key(node, key, str(word))
            inner = f"{key}.{new or word}" if key else str(new or word)
            if new is not None:
                yield f"{key}.{word} was renamed to {inner}"
            yield from _list_renamed(value, inner, config)
    elif isinstance(node, (list, tuple)):
        for number, value in enumerate(node):
            yield from _list_renamed(value, key if isinstance(value, str) else f"{key}.{number}", config)
    elif isinstance(node, str):
        new = find_new_name("values", name, node) or find_new_path(node) or _new_metric(node)
        if new is not None:
            yield f"{key}: {node} was renamed to {new}"
        for reference in _REFERENCE.findall(node):
            if (present := _translate(config, reference)) != reference:
                yield f"{key}: ${{{reference}}} was renamed to ${{{present}}}"


def _new_words(argument: str) -> str | None:
    """Return the present words of an option, as in the stages of a warm start; None if it is there."""
    group, _, option = argument.partition("=")
    new = find_new_option(group, option)
    return None if new is None or option in groups()[group] else new


def _new_metric(name: str) -> str | None:
    """Return the present name of a metric, such as seconds/learn; None if it was not renamed."""
    first, slash, rest = name.partition("/")
    if not slash or " " in name:
        return None
    if new := find_new_name("metrics", name):
        return new
    group, end = find_new_name("metric_groups", first), find_new_name("metric_ends", rest.rpartition("/")[2])
    return f"{group}/{rest}" if group else f"{name.rpartition('/')[0]}/{end}" if end else None
