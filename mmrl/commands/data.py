"""Recorded episodes: make them, look at them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mmrl.commands.usage import USAGES
from mmrl.config.bounds import LARGEST
from mmrl.errors import ConfigError

RECORD_OPTIONS = (
    *("num_episodes", "out", "run", "policy", "checkpoint", "decode", "noise", "video", "format", "offset", "split"),
)


def data(words: Sequence[str]) -> None:
    """record or inspect, or how to use them."""
    if not words:
        print(USAGES["data"], end="")
        return
    verb, rest = words[0], list(words[1:])
    if verb == "record":
        from mmrl.commands.data_record import record

        record(rest)
    elif verb == "inspect":
        from mmrl.commands.data_inspect import inspect

        inspect(rest)
    else:
        raise ConfigError(f"mmrl data {verb}: no such thing; there are record and inspect")


def options(words: Sequence[str], known: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The options among key=value words, and the words that are none of them."""
    given, more = {}, []
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key in known:
            given[key] = value
        else:
            more.append(word)
    return given, more


def switch(given: dict[str, str], name: str, default: bool) -> bool:
    """A word that must be true or false."""
    word = given.get(name, str(default)).lower()
    if word not in ("true", "false"):
        raise ConfigError(f"{name}={given[name]}: must be true or false")
    return word == "true"


def number(given: dict[str, str], name: str, default: float, least: float) -> float:
    """A word that must be a finite number of at least `least`."""
    try:
        value = float(given.get(name, default))
    except ValueError as error:
        raise ConfigError(f"{name}={given[name]}: must be a number") from error
    if not math.isfinite(value):
        raise ConfigError(f"{name}={given[name]}: must be a finite number")
    if value < least:
        raise ConfigError(f"{name}={given[name]}: must be at least {least:g}")
    return value


def whole(given: dict[str, str], name: str, default: int, least: int) -> int:
    """A word that must be a whole number of at least `least`."""
    value = number(given, name, default, least)
    if value != int(value) or "e" in given.get(name, "").lower():
        raise ConfigError(f"{name}={given[name]}: must be a whole number")
    if value > LARGEST:
        raise ConfigError(f"{name}={given[name]}: must be at most {LARGEST}")
    return int(value)
