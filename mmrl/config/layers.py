"""The files of which a run is composed: those of its setting, of its method and of its recipe, without Hydra.

`conf/method` holds what papers say, `conf/setting` where a method is run, and a recipe names one of each. Hydra merges
the files in that order; here they are read one by one, so that it is known which of them says what.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mmrl.config.option_files import CONF, find_option, find_options

RUNS = ("recipe", "start")
"""Groups whose files are whole runs: each names a method and a setting."""
RUN_WORDS = tuple(f"{group}=" for group in RUNS)
"""How the words that name a whole run begin."""
LAYERS = ("setting", "method", *RUNS)
"""Groups whose files have keys of every part of a run, in the order in which they are merged."""


@dataclass(frozen=True)
class Layer:
    """One file: the options that it chooses for other groups, and the keys that it sets.

    `group` and `name` say which file it is; its name is the stem.
    """

    group: str
    name: str
    choices: Mapping[str, str | None]
    keys: Mapping[str, Any]


def read_run(choices: Mapping[str, str | None]) -> list[Layer]:
    """Read the layers of a run, in the order in which they are merged.

    Args:
        choices: of the groups in `LAYERS`, as a command line names them; where it names none, the run's own file does,
            or else conf/config.yaml, whose recipe runs where no group is named.
    """
    named = {group: choices[group] for group in LAYERS if group in choices}
    if not named:
        named = {"recipe": default_choices()["recipe"]}
    runs = [layer for group in RUNS if (option := named.get(group)) for layer in read_layers(group, option)]
    chosen = {**default_choices(), **merge_choices(runs), **named}
    parts = [
        layer for group in ("setting", "method") if (option := chosen[group]) for layer in read_layers(group, option)
    ]
    return [*parts, *runs]


def read_layers(group: str, option: str) -> list[Layer]:
    """Read a file and those that it extends, which come first; none for an option that is not there."""
    name = Path(option).name
    if name not in find_options()[group]:
        return []
    keys = dict(_read_file(find_option(group, name).path))
    entries = keys.pop("defaults", None) or []
    choices = {_group(key): option for entry in entries if isinstance(entry, dict) for key, option in entry.items()}
    layers: list[Layer] = []
    for entry in entries:
        if isinstance(entry, str) and entry != "_self_":
            layers += read_layers(group, entry)  # /method/losses/grpo, or a name in the same folder
    return [*layers, Layer(group, name, choices, keys)]


def merge_choices(layers: Sequence[Layer]) -> dict[str, str | None]:
    """The option of each group that a layer chooses; a later layer comes before an earlier one."""
    return {group: option for layer in layers for group, option in layer.choices.items()}


def read_paper(choices: Mapping[str, str | None]) -> dict[str, Any]:
    """The header `paper:` of a run, its method's with what its own file adds; empty where there is none."""
    return {key: value for layer in read_run(choices) for key, value in (layer.keys.get("paper") or {}).items()}


@functools.cache
def default_choices() -> dict[str, str | None]:
    """The options of conf/config.yaml, by group."""
    entries = _read_file(CONF / "config.yaml")["defaults"]
    return {group: option for entry in entries if isinstance(entry, dict) for group, option in entry.items()}


def flatten(keys: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The full key and the value of each leaf of nested mappings; one with keys that are numbers is a leaf."""
    for name, value in keys.items():
        if isinstance(value, dict) and value and all(isinstance(key, str) for key in value):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _group(key: str) -> str:
    """The group of an entry such as `override /task`."""
    return key.split()[-1].lstrip("/")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML 1.1 reads 1e-6 as a text; Hydra and this loader read a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d[\d_]*(?:\.[\d_]*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def _read_file(file: Path) -> dict[str, Any]:
    stat = file.stat()
    return _read_version(file, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=1024)
def _read_version(file: Path, time_ns: int, size: int) -> dict[str, Any]:
    """A file's keys; time and size only tell whether it has changed."""
    return yaml.load(file.read_bytes(), _Loader) or {}
