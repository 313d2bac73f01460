"""Check the class of every part of a configuration against the type of its slot, before anything is called."""

from __future__ import annotations

import collections.abc
import difflib
import inspect
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from mmrl.config.code.trust import OURS, is_standard
from mmrl.config.signatures import constructor_parameters, import_class
from mmrl.core.errors import ConfigError


def check_slots(config: Mapping[str, Any], roots: Mapping[str, Any]) -> None:
    """Check the class of every part against the type of its slot, before anything is called.

    The typed parser lets functions pass where a slot takes a callable that returns a part, such as an optimiser, and
    builds whatever class stands in a slot without a type.

    Args:
        config: parsed; parts as {class_path, init_args}.
        roots: type of each section, by its key.

    Raises:
        ConfigError: a class of another type, or a function of a package that is not mmrl's.
    """
    for name, hint in roots.items():
        _check_slot(config.get(name), hint, name)


def check_empty_names(node: Any, key: str = "") -> None:
    """Refuse arguments that a class does not have and whose value is an empty mapping or list.

    The typed parser refuses unknown arguments with a value, and drops those without one.

    Args:
        node: of the configuration, before it is parsed; parts as {class_path, init_args}.
        key: of the node.
    """
    pairs: Any = enumerate(node) if isinstance(node, list) else node.items() if isinstance(node, Mapping) else ()
    if isinstance(node, Mapping) and isinstance(node.get("class_path"), str):
        part = import_class(node["class_path"])
        parameters = constructor_parameters(part) if isinstance(part, type) else None
        variadic = parameters is None or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        for name, value in (node.get("init_args") or {}).items():
            if parameters is not None and not variadic and name not in parameters and value in ({}, []):
                near = difflib.get_close_matches(name, list(parameters), n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(parameters) or 'nothing'}"
                raise ConfigError(f"{key}: unknown key {name!r} ({node['class_path']}); {hint}")
    for name, value in pairs:
        check_empty_names(value, key if name == "init_args" else f"{key}.{name}".lstrip("."))


def _check_slot(value: Any, hint: Any, key: str) -> None:
    if isinstance(value, Mapping) and isinstance(value.get("class_path"), str):
        part = load_class(value["class_path"], hint, key)
        hints = argument_hints(part)
        for name, inside in (value.get("init_args") or {}).items():
            _check_slot(inside, hints.get(name, Any), f"{key}.{name}")
        return
    if isinstance(value, Mapping):
        kinds = list(_classes_of(hint)) if _item_of(hint) is None else []
        hints = argument_hints(kinds[0]) if len(kinds) == 1 else None  # a part of one class, which needs no class_path
        for name, inside in value.items():
            _check_slot(inside, _item_of(hint) if hints is None else hints.get(name, Any), f"{key}.{name}")
    elif isinstance(value, (list, tuple)):
        for number, inside in enumerate(value):
            _check_slot(inside, _item_of(hint), f"{key}.{number}")
    elif callable(value) and not isinstance(value, type):
        module = str(getattr(value, "__module__", None) or "")
        if module.partition(".")[0] not in (*OURS, "torch"):
            name = getattr(value, "__qualname__", type(value).__name__)
            raise ConfigError(f"{key}={module}.{name}: a function that is not of mmrl; name a class of the slot's type")


def load_class(path: str, hint: Any, key: str) -> type:
    """Import a class and check that a slot takes it.

    Args:
        path: import path.
        hint: type of the slot: a class, a union, a collection, or a callable that returns one.
        key: of the configuration, for messages.

    Raises:
        ConfigError: it is no class, or of another type.
    """
    if is_standard(path.rpartition(".")[0]):
        raise ConfigError(f"{key}={path}: a part of Python's standard library, which is no part of a run")
    part, kinds = import_class(path), tuple(_classes_of(hint))
    if not isinstance(part, type):
        raise ConfigError(f"{key}={path}: {'a function' if callable(part) else 'it'} is no class; name a class")
    if hint is not None and not kinds:
        raise ConfigError(f"{key} takes plain values, and {path} is a class; write the values")
    if kinds and not issubclass(part, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ConfigError(f"{key}={path}: it is no {names}; name a class that is")
    return part


def argument_hints(part: type) -> dict[str, Any]:
    """Return the types of a constructor's arguments, those of its base classes included; None where it is not known."""
    hints: dict[str, Any] = {}
    for base in reversed([each for each in part.__mro__ if "__init__" in vars(each) and each is not object]):
        try:
            hints |= typing.get_type_hints(base.__init__)  # type: ignore[misc]
        except Exception:  # a name that only type checkers import
            hints |= dict.fromkeys(inspect.signature(base.__init__).parameters)  # type: ignore[misc]
    return hints


def _classes_of(hint: Any) -> Iterator[type]:
    """List the classes of parts that a type takes; plain values and their collections have none."""
    origin = get_origin(hint)
    if origin is collections.abc.Callable:
        yield from _classes_of(get_args(hint)[1]) if get_args(hint) else ()
    elif origin in (typing.Union, types.UnionType):
        for one in get_args(hint):
            yield from _classes_of(one)
    elif origin is not None and isinstance(origin, type) and origin.__module__ not in ("builtins", "collections.abc"):
        yield origin
    elif isinstance(hint, typing.TypeVar):
        yield from _classes_of(hint.__bound__)
    elif inspect.isclass(hint) and origin is None and hint.__module__ not in ("builtins", "collections.abc", "typing"):
        yield hint


def _item_of(hint: Any) -> Any:
    """Return the type of the items of a collection, also of one inside a union; None where it is not known."""
    origin = get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        items = [item for one in get_args(hint) if (item := _item_of(one)) is not None]
        return items[0] if items else None
    arguments = [one for one in get_args(hint) if one is not Ellipsis]
    return arguments[-1] if origin is not None and origin is not collections.abc.Callable and arguments else None
