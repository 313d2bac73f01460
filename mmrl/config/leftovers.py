"""Remove arguments of a replaced part: those of a recipe for its own task where another task comes in its place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf, open_dict

from mmrl.config.option_files import find_option, find_options
from mmrl.config.signatures import constructor_parameters


def drop_leftovers(
    cfg: DictConfig,
    overrides: Sequence[str],
    recipe: str | None,
    load: Callable[[str], Any],
    parts: Mapping[str, str],
) -> None:
    """Where a part is replaced, remove arguments that the new one does not take.

    A part is replaced by `key._target_=CLASS` or `group=OPTION` in the overrides, or by `override /group: OPTION` in
    the recipe or one that it inherits. What remains of the replaced part are arguments of an inherited recipe, such as
    the digits of its sums.

    Args:
        cfg: composed; changed in place.
        overrides: Hydra's overrides; arguments that they set are kept, so that a wrong one is refused by name, and so
            are those of the recipe that replaces the part.
        recipe: name of the recipe, if there is one.
        load: returns the class of an import path, or None.
        parts: keys of parts by their config groups.
    """
    given = {override.lstrip("+~").partition("=")[0] for override in overrides}
    replaced = {key.removesuffix("._target_"): given for key in given if key.endswith("._target_")}
    replaced |= {part: given for group, part in parts.items() if group in given}
    for group, keys in find_replaced_groups(recipe).items():
        if group in parts:
            replaced.setdefault(parts[group], given | keys)
    for key, kept in sorted(replaced.items()):
        node = OmegaConf.select(cfg, key)
        path = node.get("_target_") if isinstance(node, DictConfig) else None
        taken = None if path is None else _list_parameters(load(str(path)))
        if taken is None:
            continue
        prefix = f"{key}."
        own = {name for name in map(str, node) if any((k + ".").startswith(f"{prefix}{name}.") for k in kept)}
        with open_dict(node):
            for name in [str(name) for name in node if name not in {"_target_", *taken, *own}]:
                del node[name]


def find_replaced_groups(recipe: str | None) -> dict[str, set[str]]:
    """Find the groups that a recipe or an inherited one overrides, with the keys that it and those after it set."""
    found: dict[str, set[str]] = {}
    keys: set[str] = set()
    while recipe is not None and recipe in find_options()["recipe"]:
        body = yaml.safe_load(find_option("recipe", recipe).path.read_text(encoding="utf-8")) or {}
        defaults, recipe = body.pop("defaults", ()), None
        keys = keys | set(_flatten(body))
        for entry in defaults:
            if not isinstance(entry, dict):
                recipe = entry if entry != "_self_" else recipe
                continue
            for name in entry:
                words = str(name).split()
                if words[0] == "override":
                    found.setdefault(words[-1].lstrip("/"), keys)
    return found


def _flatten(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The full keys of all values in nested mappings."""
    for name, value in node.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")


def _list_parameters(part: Any) -> set[str] | None:
    """List the names of a constructor's parameters; None if it takes any name or has no signature."""
    if not inspect.isclass(part):
        return None
    parameters = constructor_parameters(part)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    return set(parameters)
