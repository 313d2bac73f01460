"""Read a rounds file: a mapping of plain values, with the overrides of the command line, and its typed stages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mmrl.commands.rounds.stages import KINDS, Stage
from mmrl.config.option_files import find_options
from mmrl.core.errors import ConfigError

DEFAULTS: Mapping[str, Any] = {
    "rounds": 1,
    "seed": 0,
    "base": None,
    "metric": None,
    "run_dir": None,
    "common": [],
    "start": {},
    "stages": {},
}
HEADERS = ("title", "paper", "paper_setting", "baselines")
"""What a file says of its source, and by name the arguments of the same file that it is compared with; no run depends
on it."""
_STAGE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True)
class RoundsFile:
    """A rounds file after the command line.

    Args:
        name: of the file, without its ending.
        values: plain values, with all keys of `DEFAULTS`.
        words: overrides of the command line, which take precedence in every stage.
    """

    name: str
    values: Mapping[str, Any]
    words: Sequence[str]


def read_rounds(arguments: Sequence[str]) -> RoundsFile:
    """Read the file that the first argument names, and apply the others.

    Args:
        arguments: the name of an option of conf/rounds or a path, then key=value: a key of the file, such as rounds=2
            or stages.grow.count=64, or an override of `mmrl fit` for all stages, such as policy.path=MODEL.

    Raises:
        ConfigError: naming file, stage and key.
    """
    places = [argument for argument in arguments if "=" not in argument]
    if len(places) != 1 or any(argument.startswith("-") for argument in arguments):
        raise ConfigError(f"give the name of a rounds file or its path, then key=value; got {list(arguments)}")
    path = find_file(places[0])
    values = {**DEFAULTS, **_read_mapping(path)}
    words: list[str] = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            continue
        if key.partition(".")[0] in DEFAULTS:
            _set_value(values, key, yaml.safe_load(value), argument)
        else:
            words.append(argument)
    values = {key: values[key] for key in (*DEFAULTS, *(k for k in HEADERS if k in values))}
    _check_values(values, path.name)
    return RoundsFile(path.stem, values, words)


def find_file(place: str) -> Path:
    """Return the path of a rounds file: an option of conf/rounds, or a file of the user."""
    options = find_options()["rounds"]
    if place in options:
        return options[place].path
    path = Path(place)
    if path.is_file():
        return path
    near = difflib.get_close_matches(place, options, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ConfigError(f"{place}: no such file, and no option of conf/rounds, which has {sorted(options)}.{hint}")


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a key that stands twice in a mapping, of which YAML would take the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        for number, key in enumerate(keys):
            if key in keys[:number]:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _read_mapping(path: Path) -> dict[str, Any]:
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeyLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(f"{path}: not YAML ({reason})") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must be a mapping with stages, is {type(values).__name__}")
    known = (*DEFAULTS, *HEADERS)
    if unknown := [key for key in values if key not in known]:
        raise ConfigError(f"{path}: unknown key {unknown[0]!r}.{suggest(str(unknown[0]), known)} Keys: {list(known)}")
    return values


def _set_value(values: dict[str, Any], key: str, value: Any, argument: str) -> None:
    """Set a key of the file, whose stages and blocks must be there."""
    *above, last = key.split(".")
    node: Any = values
    for depth, name in enumerate(above):
        if not isinstance(node, dict) or not isinstance(node.get(name), dict):
            raise ConfigError(f"{argument}: the file has no {'.'.join(above[: depth + 1])}")
        node[name] = dict(node[name])  # the file's own mapping may be shared by a YAML alias
        node = node[name]
    node[last] = value


def _check_values(values: Mapping[str, Any], name: str) -> None:
    for key in ("rounds", "seed"):
        number = values[key]
        if isinstance(number, bool) or not isinstance(number, int) or number < (1 if key == "rounds" else 0):
            raise ConfigError(f"{name}: {key} must be a whole number of at least {int(key == 'rounds')}, got {number}")
    for key in ("base", "metric", "run_dir"):
        if values[key] is not None and not isinstance(values[key], str):
            raise ConfigError(f"{name}: {key} must be a text, got {values[key]!r}")
    if values["base"] is not None and not Path(values["base"]).is_file():
        raise ConfigError(f"{name}: base={values['base']}: no such file; give a .ckpt file of a run")
    common = values["common"]
    if not isinstance(common, list) or not all(isinstance(word, str) and "=" in word for word in common):
        raise ConfigError(f"{name}: common must be a list of overrides key=value, got {common!r}")
    for key in ("start", "stages"):
        if not isinstance(values[key], dict):
            raise ConfigError(f"{name}: {key} must be a mapping of stages by name, got {values[key]!r}")
    for baseline, arguments in dict(values.get("baselines", {})).items():
        if not isinstance(arguments, list) or not all(isinstance(each, str) and "=" in each for each in arguments):
            raise ConfigError(f"{name}: baselines.{baseline} must be a list of arguments key=value, got {arguments!r}")
    if not values["stages"]:
        raise ConfigError(f"{name}: stages is empty; name at least one stage, with its kind: {', '.join(KINDS)}")


def check_stage_name(name: Any, place: str) -> None:
    """Refuse names that cannot be those of folders and references."""
    if not isinstance(name, str) or not _STAGE_NAME.fullmatch(name) or name in ("base", "newest", "round", "folder"):
        raise ConfigError(
            f"{place}: {name!r} is no name of a stage; take letters, digits and _, beginning with a letter, and none "
            "of base, newest, round, folder"
        )


def read_stage(node: Any, place: str) -> Stage:
    """Build the typed stage of a mapping; raises ConfigError naming the stage and the key."""
    if not isinstance(node, dict):
        raise ConfigError(f"{place} must be a mapping with kind, got {node!r}")
    kind = node.get("kind")
    if kind not in KINDS:
        raise ConfigError(
            f"{place}.kind: {kind!r} is no kind of stage.{suggest(str(kind), KINDS)} Kinds: {list(KINDS)}"
        )
    # the types are those of the stage's class
    options = {key: value for key, value in node.items() if key != "kind"}
    schema = OmegaConf.structured(KINDS[kind])
    OmegaConf.set_readonly(schema, False)
    names = list(schema)
    if unknown := [key for key in options if key not in names]:
        hint = suggest(str(unknown[0]), names)
        raise ConfigError(f"{place}.{unknown[0]}: a stage of kind {kind} has no such key.{hint} Keys: {names}")
    for key, value in options.items():
        try:
            OmegaConf.update(schema, str(key), value)
        except OmegaConfBaseException as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(f"{place}.{key}: {reason}") from error
    values: Any = OmegaConf.to_container(schema, resolve=False)
    if wrong := [word for word in values["overrides"] if "=" not in word]:
        raise ConfigError(f"{place}.overrides: {wrong[0]!r} is no override; write key=value")
    try:
        return KINDS[kind](**values)
    except ValueError as error:
        raise ConfigError(f"{place}.{str(error).lstrip('.')}") from error


def suggest(name: str, names: Any) -> str:
    """Name the nearest of the names, as the rest of a message; empty where none is near."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
