"""Checks and quoting of key=value arguments, and what Hydra composes of them."""

from __future__ import annotations

import functools
import inspect
import os
import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from mmrl.config.layers.files import read_run
from mmrl.config.option_files import CONF, list_folders
from mmrl.config.short_names import search_path
from mmrl.config.signatures import constructor_parameters
from mmrl.core.errors import ConfigError

_FLAGS = ("-m", "--multirun", "--cfg", "-c", "--info", "--package", "-p")
_PART = re.compile(r"[\w-]+")
_STRUCTURED = ("[", "{", "'", '"')
_SWEEP = "several values, and `mmrl fit` is one run; `mmrl fit --multirun` runs them all"
_VALUE = "++"
"""What an override that sets a value begins with; the others choose or remove options."""


def check_argument(argument: str) -> None:
    """Refuse an argument that is not key=value, or whose key is invalid."""
    key, equals, _ = argument.partition("=")
    if argument.partition(" ")[0] in _FLAGS:
        raise ConfigError(
            f"{argument}: an option of Hydra; overrides are key=value, and `mmrl fit --multirun` takes Hydra's options"
        )
    if not equals or not key.lstrip("+~"):
        raise ConfigError(f"{argument!r} is not of the form key=value, for example recipe=grpo or trainer.max_epochs=5")
    for part in key.lstrip("+~").split("."):
        if not part:
            raise ConfigError(
                f"{argument}: the key has an empty part between its dots; write it as in data.num_prompts=8"
            )
        if part != part.strip() or " " in part:
            raise ConfigError(f"{argument}: the key has spaces in it; write it as in data.num_prompts=8")
        if not _PART.fullmatch(part) and "/" not in part:
            raise ConfigError(
                f"{key}: {part!r} is not a key; keys have letters, digits, _ and -, as in data.num_prompts=8"
            )


def check_groups(arguments: Sequence[str], groups: Mapping[str, list[str]]) -> None:
    """Refuse two options of one group, such as two recipes. For a plain key the last value counts."""
    choices: dict[str, str] = {}
    for argument in arguments:
        key, _, value = argument.lstrip("+").partition("=")
        if key in groups and choices.setdefault(key, value) != value:
            raise ConfigError(f"{key}={choices[key]} and {key}={value}: {key} can be given once; leave one of them out")


def quote(override: str) -> str:
    """Quote the text of an override that Hydra would not parse, such as runs/lr=1e-4."""
    parser = OverridesParser.create()
    key, _, value = override.partition("=")
    try:
        parsed = parser.parse_override(override)
    except HydraException as error:
        name = key.lstrip("+~")
        plain = not value.startswith(_STRUCTURED) and "${" not in value
        if bad := [character for character in value if not character.isprintable()]:
            raise ConfigError(f"{name}={value!r}: the character {bad[0]!r} cannot be read; leave it out") from error
        if plain:
            text = f"{key}='" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
            try:
                parser.parse_override(text)
            except HydraException:
                plain = False
            else:
                return text
        raise ConfigError(
            f"{name}={value}: the value cannot be read; close its brackets and quotes, and put a text in quotes, "
            f"as in {name}='a, b'"
        ) from error
    if parsed.is_sweep_override():
        raise ConfigError(f"{key.lstrip('+~')}={value}: {_SWEEP}")
    return override


def check_effect(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Refuse `key={}` for a mapping: Hydra merges it with the present entries, so it changes nothing."""
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if value.replace(" ", "") == "{}":
            present = OmegaConf.select(cfg, key, throw_on_missing=False)
            if isinstance(present, DictConfig) and len(present):
                raise ConfigError(
                    f"{key}={{}} changes nothing: a mapping is merged with what is there, {sorted(map(str, present))}; "
                    f"take one out with {key}.{sorted(map(str, present))[0]}=null"
                )


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
        if names and name not in names:  # of none, all are taken out already
            raise ConfigError(f"{key}=null takes out a part that is not there; {parent} has {names}")


def removed_parts(overrides: Sequence[str], named: Sequence[str]) -> list[str]:
    """Return the keys of the named parts that overrides set to null."""
    pairs = (override.lstrip("+~").partition("=") for override in overrides)
    keys = [key for key, _, value in pairs if value == "null"]
    return [key for key in keys if key.count(".") > 1 and key.split(".")[-2] in named]


def drop_leftovers(
    cfg: DictConfig,
    overrides: Sequence[str],
    choices: Mapping[str, str | None],
    load: Callable[[str], Any],
    parts: Mapping[str, str],
) -> None:
    """Where a part is replaced, remove arguments that the new one does not take.

    A part is replaced by `key._target_=CLASS` or `group=OPTION` in the overrides, or by `override /group: OPTION` in
    a file of the run. What remains of the replaced part are arguments that an earlier file sets, such as the digits of
    a setting's sums.

    Args:
        cfg: composed; changed in place.
        overrides: Hydra's overrides; arguments that they set are kept, so that a wrong one is refused by name, and so
            are those of the recipe that replaces the part.
        choices: options of the groups, as Hydra composed them.
        load: returns the class of an import path, or None.
        parts: keys of parts by their config groups.
    """
    override_keys = {override.lstrip("+~").partition("=")[0] for override in overrides}
    replaced = {key.removesuffix("._target_"): override_keys for key in override_keys if key.endswith("._target_")}
    replaced |= {part: override_keys for group, part in parts.items() if group in override_keys}
    for group, keys in find_replaced_groups(choices).items():
        if group in parts:
            replaced.setdefault(parts[group], override_keys | keys)
    group_of = {part: group for group, part in parts.items()}
    for key, new_keys in sorted(replaced.items()):
        node = OmegaConf.select(cfg, key)
        path = node.get("_target_") if isinstance(node, DictConfig) else None
        if f"~{group_of.get(key)}" in overrides and path is None and isinstance(node, DictConfig):
            _drop_absent(cfg, key, node, new_keys, group_of[key])
            continue
        parameters = None if path is None else _list_parameters(load(str(path)))
        if parameters is None:
            continue
        prefix = f"{key}."
        names = {name for name in map(str, node) if any((k + ".").startswith(f"{prefix}{name}.") for k in new_keys)}
        with open_dict(node):
            for name in [str(name) for name in node if name not in {"_target_", *parameters, *names}]:
                del node[name]


def _drop_absent(cfg: DictConfig, key: str, node: DictConfig, new_keys: set[str], group: str) -> None:
    """Set a part to null that the command line takes out by `group=null`, where only arguments of it remain.

    Raises:
        ConfigError: the command line also gives it an argument.
    """
    arguments = sorted(k for k in new_keys if k.startswith(f"{key}."))
    if not arguments:
        OmegaConf.update(cfg, key, None, merge=False, force_add=True)
    elif not any("_target_" in k.split(".") for k in arguments):  # which would name a class for it
        raise ConfigError(
            f"{arguments[0]}: this run has {group}=null, so nothing reads it; leave it out, or choose {group}=NAME"
        )


def find_replaced_groups(choices: Mapping[str, str | None]) -> dict[str, set[str]]:
    """Find the groups that a run's files override, with the keys that the last such file and those after it set."""
    replaced: dict[str, set[str]] = {}
    keys: set[str] = set()
    for layer in reversed(read_run(choices)):
        keys = keys | set(_flatten(layer.keys))
        for group in layer.choices:
            replaced.setdefault(group, keys)
    return replaced


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


def compose_overrides(overrides: Sequence[str], before: Mapping[str, Any] | None = None) -> DictConfig:
    """Compose conf/ and the folders of the search path, Hydra's own section included.

    Hydra sets values after it has merged all options. So the options are composed without values, which takes most of
    the time, and the result is cached until a file changes.

    Args:
        overrides: Hydra's, as `to_hydra_overrides` writes them.
        before: values by their full keys, which are set before those of the overrides.

    Raises:
        HydraException: an option that is not there, or a value that cannot be set.
    """
    values = [override for override in overrides if _is_value(override)]
    options = [override for override in overrides if not _is_value(override)]
    files = tuple(_stat_files([CONF, *(folder for _, folder in list_folders())]))
    cfg = pickle.loads(_compose_options((search_path(), *options), files))
    for key, value in (before or {}).items():
        OmegaConf.update(cfg, key, value, merge=True, force_add=True)
    parser = OverridesParser.create()
    for override in parser.parse_overrides(values):
        try:
            OmegaConf.update(cfg, override.key_or_group, override.value(), merge=True, force_add=True)
        except OmegaConfBaseException as error:
            raise ConfigCompositionException(f"Error merging override {override.input_line}") from error
    return cfg


def _is_value(override: str) -> bool:
    """Whether an override sets a value at a key; a key with a / or an @ names a group."""
    key = override.partition("=")[0]
    return key.startswith(_VALUE) and not {"/", "@"} & set(key)


@functools.lru_cache(maxsize=256)
def _compose_options(overrides: tuple[str, ...], files: tuple[tuple[str, int, int], ...]) -> bytes:
    """The pickled configuration of options; `files` only tells whether a file has changed."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return pickle.dumps(compose("config", overrides=list(overrides), return_hydra_config=True))


def _stat_files(folders: Sequence[Path]) -> Iterator[tuple[str, int, int]]:
    """Path, time in nanoseconds and size of every YAML file below the folders."""
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for path in (os.path.join(parent, name) for name in names if name.endswith(".yaml")):
                stat = os.stat(path) if os.path.exists(path) else os.lstat(path)  # a link to nothing
                yield path, stat.st_mtime_ns, stat.st_size
