"""Refuse files of a run that Hydra would refuse with the list of its search path, or merge into another run."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mmrl.config.layers.files import LAYERS, RUNS, Options, default_choices, merge_choices, read_keys, read_layers
from mmrl.config.option_files import OptionFile
from mmrl.core.errors import ConfigError

_OVERRIDE = "override /"


def check_layers(named: Mapping[str, str], options: Options) -> None:
    """Check the files of a run, those that they extend included.

    Args:
        named: existing options of the groups in `LAYERS`, as a command line names them.
        options: the files of all options.

    Raises:
        ConfigError: with the file, where it names an option that is not there, one group twice or no method.
    """
    runs = {group: Path(named[group]).name for group in RUNS if group in named}
    if not named:
        runs = {"recipe": str(default_choices()["recipe"])}
    choices: dict[str, str | None] = {}
    for group, name in runs.items():
        _check_file(options, group, name)
        choices = merge_choices(read_layers(group, name, options))
        if not choices.get("method"):
            raise ConfigError(
                f"{options[group][name].path}: {group} {name!r} names no method; write defaults: "
                "[{override /method: NAME}, {override /setting: NAME}], or extend another: defaults: [grpo]"
            )
    for group in (group for group in LAYERS if group not in RUNS):
        if option := {**default_choices(), **choices, **named}[group]:
            _check_file(options, group, Path(option).name)


def _check_file(options: Options, group: str, name: str, folder: str = "") -> None:
    """Check the `defaults:` of a file and of those that it extends; `folder` is where Hydra looks for names in it."""
    path = options[group][name].path
    choices: dict[str, Any] = {}
    for key, option in _read_entries(path):
        if key is None:
            other, extended = _find_extended(options, group, path, folder, option)
            _check_file(options, other, Path(extended).name, extended.rpartition("/")[0])
        elif (other := key.split()[-1].lstrip("/")) in options:
            if other in choices:
                twice = f"{_OVERRIDE}{other} is there twice, {choices[other]} and {option}"
                raise ConfigError(f"{path}: {twice}; leave one of them out")
            if not key.startswith(_OVERRIDE):
                raise ConfigError(f"{path}: {key}: {option}: write {_OVERRIDE}{other}: {option}")
            choices[other] = option
            if option is not None and "${" not in str(option):
                cause = f"{path}: {key}: {option}: there is no {other} {str(option)!r}"
                _check_name(options[other], str(option), cause, other)


def _read_entries(path: Path) -> Iterator[tuple[str | None, Any]]:
    """The entries of `defaults:`: group and option, or None and the name of a file that is extended."""
    entries = read_keys(path).get("defaults") or []
    for entry in entries if isinstance(entries, list) else [entries]:
        if isinstance(entry, dict):
            yield from entry.items()
        elif isinstance(entry, str) and entry != "_self_":
            yield None, entry


def _find_extended(options: Options, group: str, path: Path, folder: str, entry: str) -> tuple[str, str]:
    """Group and name of a file that another extends: /method/grpo, or grpo in the same group."""
    name = f"{folder}/{entry}" if folder else entry
    if entry.startswith("/"):
        group, _, name = entry[1:].partition("/")
    if group not in options:
        raise ConfigError(f"{path}: defaults: {entry}: there is no group {group!r}; write /GROUP/NAME")
    begin = f"/{group}/" if folder or entry.startswith("/") else ""
    cause = f"{path}: defaults: {entry}: there is no {group} {name!r}"
    _check_name(options[group], name, cause, group, begin)
    return group, name


def _check_name(options: Mapping[str, OptionFile], name: str, cause: str, group: str, begin: str = "") -> None:
    """Refuse what is neither the name of an option nor its path below the group, with one of that stem or the nearest.

    `begin` stands in front of the name in the message.
    """
    stem = Path(name).name
    if stem in options and name in (stem, options[stem].name):
        return
    near = [stem] if stem in options else difflib.get_close_matches(stem, options, n=1)
    hint = f"did you mean {begin + near[0]!r}? " if near else ""
    raise ConfigError(f"{cause}; {hint}`mmrl list {group}` names all")
