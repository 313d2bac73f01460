"""Read the options NAME=value of `mmrl data`, `mmrl serve` and `mmrl robot`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mmrl.config.bounds import LARGEST
from mmrl.core.errors import ConfigError

RECORD_OPTIONS = (
    *("num_episodes", "out", "run", "policy", "checkpoint", "decode", "noise", "video", "format", "offset", "split"),
)

CONVERT_OPTIONS = ("out", "fps", "split", "action", "video")

WEIGHTS_OPTIONS = ("rank", "share", "out", "other", "trust")

SERVE_OPTIONS = ("host", "port", "token_file", "checkpoint", "decode", "seed", "device", "max_batch", "trust")

ROBOT_OPTIONS = (
    *("robot", "url", "token_file", "checkpoint", "decode", "seed", "device", "trust"),
    *("num_episodes", "max_steps", "split", "offset", "fps", "execute", "blend", "guide", "limit"),
    *("clock", "latency_ms", "takeover", "patience", "duration", "out", "video"),
)


def split_options(arguments: Sequence[str], known: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Options by name, and the arguments that are no option; an option that is given twice is refused."""
    options, more = {}, []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and key in options:
            raise ConfigError(f"{key}={options[key]} and {argument}: {key} is given twice; keep one of them")
        if equals and key in known:
            options[key] = value
        else:
            more.append(argument)
    return options, more


def parse_switch(options: dict[str, str], name: str, default: bool) -> bool:
    """The value of an option that is true or false."""
    value = options.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise ConfigError(f"{name}={options[name]}: must be true or false")
    return value == "true"


def parse_number(options: dict[str, str], name: str, default: float, least: float) -> float:
    """The value of an option that is a finite number of at least `least`."""
    try:
        value = float(options.get(name, default))
    except ValueError as error:
        raise ConfigError(f"{name}={options[name]}: must be a number") from error
    if not math.isfinite(value):
        raise ConfigError(f"{name}={options[name]}: must be a finite number")
    if value < least:
        raise ConfigError(f"{name}={options[name]}: must be at least {least:g}")
    return value


def parse_count(options: dict[str, str], name: str, default: int, least: int) -> int:
    """The value of an option that is a whole number of at least `least`."""
    value = parse_number(options, name, default, least)
    if value != int(value) or "e" in options.get(name, "").lower():
        raise ConfigError(f"{name}={options[name]}: must be a whole number")
    if value > LARGEST:
        raise ConfigError(f"{name}={options[name]}: must be at most {LARGEST}")
    return int(value)
