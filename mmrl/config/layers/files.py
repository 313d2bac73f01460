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

from mmrl.config.option_files import CONF, OptionFile, search_option
from mmrl.core.errors import ConfigError

RUNS = ("recipe", "start")
"""Groups whose files are whole runs: each names a method and a setting."""
RUN_WORDS = tuple(f"{group}=" for group in RUNS)
"""How the words that name a whole run begin."""
LAYERS = ("setting", "method", *RUNS)
"""Groups whose files have keys of every part of a run, in the order in which they are merged."""

Options = Mapping[str, Mapping[str, OptionFile]]
"""The file of every option, as `find_options` finds them; it is passed on where many runs are read, for speed."""


@dataclass(frozen=True)
class Layer:
    """One file: the options that it chooses for other groups, and the keys that it sets.

    `group` and `name` say which file it is; its name is the stem.
    """

    group: str
    name: str
    choices: Mapping[str, str | None]
    keys: Mapping[str, Any]


def read_run(choices: Mapping[str, str | None], options: Options | None = None) -> list[Layer]:
    """Read the layers of a run, in the order in which they are merged.

    Args:
        choices: of the groups in `LAYERS`, as a command line names them; where it names none, the run's own file does,
            or else conf/config.yaml, whose recipe runs where no group is named.
        options: the files of all options; without it each file is searched for.
    """
    layer_choices = {group: choices[group] for group in LAYERS if group in choices}
    if not layer_choices:
        layer_choices = {"recipe": default_choices()["recipe"]}
    runs = [
        layer for group in RUNS if (option := layer_choices.get(group)) for layer in read_layers(group, option, options)
    ]
    selection = {**default_choices(), **merge_choices(runs), **layer_choices}
    parts = [
        layer
        for group in ("setting", "method")
        if (option := selection[group])
        for layer in read_layers(group, option, options)
    ]
    return [*parts, *runs]


def read_layers(group: str, option: str, options: Options | None = None) -> list[Layer]:
    """Read a file and those that it extends, which come first; none for an option that is not there."""
    name = Path(option).name
    file = search_option(group, name) if options is None else options[group].get(name)
    if file is None:
        return []
    keys = dict(read_keys(file.path))
    entries = keys.pop("defaults", None) or []
    choices = _read_choices(entries)
    layers: list[Layer] = []
    for entry in entries:
        if isinstance(entry, str) and entry != "_self_":
            layers += read_layers(group, entry, options)  # /method/grpo, or a name in the same group
    return [*layers, Layer(group, name, choices, keys)]


def merge_choices(layers: Sequence[Layer]) -> dict[str, str | None]:
    """The option of each group that a layer chooses; a later layer comes before an earlier one."""
    return {group: option for layer in layers for group, option in layer.choices.items()}


def find_part(layers: Sequence[Layer], group: str) -> str:
    """The method or the setting of a run, by the name of its last file; empty where the run has none."""
    return next((layer.name for layer in reversed(layers) if layer.group == group), "")


def read_paper(choices: Mapping[str, str | None], options: Options | None = None) -> dict[str, Any]:
    """The header `paper:` of a run, its method's with what its own file adds; empty where there is none."""
    layers = read_run(choices, options)
    return {key: value for layer in layers for key, value in (layer.keys.get("paper") or {}).items()}


def read_inherited_differences(method: str) -> dict[str, str]:
    """What differs from their papers in the methods that a method extends, by name, the nearest first."""
    bases = read_layers("method", method)[:-1]
    texts = {layer.name: (layer.keys.get("paper") or {}).get("differs") for layer in reversed(bases)}
    return {name: str(text) for name, text in texts.items() if text not in (None, "none")}


@functools.cache
def default_choices() -> dict[str, str | None]:
    """The options of conf/config.yaml, by group."""
    return _read_choices(read_keys(CONF / "config.yaml")["defaults"])


def flatten(keys: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The full key and the value of each leaf of nested mappings; one with keys that are numbers is a leaf."""
    for name, value in keys.items():
        if isinstance(value, dict) and value and all(isinstance(key, str) for key in value):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _read_choices(entries: Sequence[Any]) -> dict[str, str | None]:
    """The option of each group in `defaults:`, by its name alone: task and sums of `override /task: mine/sums`."""
    pairs = [pair for entry in entries if isinstance(entry, dict) for pair in entry.items()]
    return {key.split()[-1].lstrip("/"): option and str(option).rpartition("/")[2] for key, option in pairs}


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML 1.1 reads 1e-6 as a text; Hydra and this loader read a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d[\d_]*(?:\.[\d_]*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read_keys(file: Path) -> dict[str, Any]:
    """The keys of a file of conf/, which are not to be changed.

    Raises:
        ConfigError: it is no YAML, or no mapping.
    """
    stat = file.stat()
    try:
        keys = _read_version(file, stat.st_mtime_ns, stat.st_size)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: {error}; correct the file") from error
    if not isinstance(keys, dict):
        raise ConfigError(f"{file}: must be a mapping of keys, got {keys!r:.60}")
    return keys


@functools.lru_cache(maxsize=1024)
def _read_version(file: Path, time_ns: int, size: int) -> Any:
    """What a file holds; time and size only tell whether it has changed."""
    return yaml.load(file.read_bytes(), _Loader) or {}
