"""Checks and quoting of key=value arguments before Hydra parses them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from mmrl.errors import ConfigError

_FLAGS = ("-m", "--multirun", "--cfg", "-c", "--info", "--package", "-p")
_PART = re.compile(r"[\w-]+")
_STRUCTURED = ("[", "{", "'", '"')
_SWEEP = "several values, and `mmrl fit` is one run; `mmrl fit --multirun` runs them all"


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
    chosen: dict[str, str] = {}
    for argument in arguments:
        key, _, value = argument.lstrip("+").partition("=")
        if key in groups and chosen.setdefault(key, value) != value:
            raise ConfigError(f"{key}={chosen[key]} and {key}={value}: {key} can be given once; leave one of them out")


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
