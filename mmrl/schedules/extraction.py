"""Move the schedules of a configuration to `data.schedules`, and put a plain number where each of them stands."""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any, Union, get_args, get_origin

from mmrl.core.errors import ConfigError
from mmrl.schedules.base import Schedule

CONTEXT = ("num_prompts", "group_size", "sampling")
"""Below `data`: what the context of an iteration holds."""
COLLECTION = ("task", "rollout", "reward", "curriculum", "transforms")
"""Below `data`: parts that collect, in the thread of asynchronous collection."""
LEARNING = ("annotators", "rows", "weighting")
"""Below `data`: parts that run when the rows are there, and `model.objective` beside them."""
_PLACES = "data." + ", data.".join((*CONTEXT, *COLLECTION, *LEARNING)) + " and model.objective"


def extract_schedules(config: dict[str, Any]) -> None:
    """Replace each schedule by its value in the last iteration; data.schedules has the schedules by their keys.

    Held-out problems and `mmrl evaluate` use the number that is left: that of the end of training. A schedule below
    data.evaluation is dropped for it.

    Args:
        config: with model, data and trainer, parts as {class_path, init_args}; changed in place.

    Raises:
        ConfigError: a schedule stands where no number can change, or the scalar is no int or float.
    """
    epochs = (config.get("trainer") or {}).get("max_epochs")
    last = max(epochs - 1, 0) if isinstance(epochs, int) else 0
    schedules: dict[str, Any] = {}
    for root in ("trainer", "model", "data"):
        config[root] = _replace(config.get(root), root, None, last, schedules)
    moved = {key: node for key, node in schedules.items() if not key.startswith("data.evaluation.")}
    if moved:
        config["data"]["init_args"]["schedules"] = moved


def _replace(node: Any, key: str, hint: Any, last: int, schedules: dict[str, Any]) -> Any:
    """Return a node with plain numbers; `schedules` gets the schedules below it."""
    if isinstance(node, list):
        item = next(iter(get_args(hint)), None)
        return [_replace(each, f"{key}.{i}", item, last, schedules) for i, each in enumerate(node)]
    if not isinstance(node, Mapping):
        return node
    part = _import_class(node.get("class_path"))
    if inspect.isclass(part) and issubclass(part, Schedule):
        schedules[key] = dict(node)
        return _find_value(part, node.get("init_args") or {}, key, hint, last)
    if "class_path" in node:
        inside = {
            name: _replace(value, f"{key}.{name}", _find_hint(part, name), last, schedules)
            for name, value in (node.get("init_args") or {}).items()
        }
        return {**node, "init_args": inside} if "init_args" in node else node
    hint = next((each for each in _members(hint) if each is not type(None)), None)
    return {
        name: _replace(value, f"{key}.{name}", _item_hint(hint, str(name)), last, schedules)
        for name, value in node.items()
    }


def _find_value(part: type[Schedule], arguments: Mapping[str, Any], key: str, hint: Any, last: int) -> float:
    """Return the value of the last iteration in the type of the scalar."""
    _check_place(key)
    kinds = [each for each in _members(hint) if each in (int, float)]
    if not kinds or bool in _members(hint):
        raise ConfigError(f"{key} is no number (int or float) of its part, so it cannot have a schedule; set a value")
    try:
        value = part(**arguments)(last)
        return float(value) if float in kinds else round(value)
    except Exception as error:
        raise ConfigError(f"{key} ({part.__name__}): {' '.join(str(error).split())}") from error


def _check_place(key: str) -> None:
    root, _, rest = key.partition(".")
    names = rest.split(".")
    places = {"data": (*CONTEXT, *COLLECTION, *LEARNING, "evaluation"), "model": ("objective",)}.get(root, ())
    if names[0] not in places or names[:2] == ["task", "sim"]:
        hint = "; the learning rate has scheduler=linear, cosine or one_cycle" if names[-1] == "lr" else ""
        raise ConfigError(f"{key} cannot have a schedule: those that can are below {_PLACES}{hint}")


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _item_hint(hint: Any, name: str) -> Any:
    """Return the type of an entry of a mapping, or of an argument of a class."""
    arguments = get_args(hint)
    return arguments[1] if len(arguments) == 2 else _find_hint(hint, name)


def _find_hint(part: Any, name: str) -> Any:
    """Return the type that a constructor declares for an argument, its own or one of its base classes'; or None."""
    if not inspect.isclass(part):
        return None
    for base in (each for each in part.__mro__ if "__init__" in vars(each)):
        parameter = inspect.signature(base.__init__).parameters.get(name)  # type: ignore[misc]
        if parameter is not None:
            return next(_evaluate(parameter.annotation, base), None)
    return None


def _evaluate(annotation: Any, part: type) -> Iterator[Any]:
    """Evaluate an annotation in the module of the class, or of the base class that it was written in."""
    if not isinstance(annotation, str):
        yield annotation
        return
    for base in part.__mro__:
        try:
            yield eval(annotation, dict(vars(sys.modules[base.__module__])))
        except Exception:  # a name that only type checkers import
            continue


def _import_class(path: Any) -> Any:
    """Import a class; None where it cannot be, which the typed parser reports."""
    if not isinstance(path, str):
        return None
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name, None)
    except Exception:
        return None
