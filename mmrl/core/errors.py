"""Errors whose text is written for the user: ConfigError, others that mmrl raises on purpose, numbers out of range."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

OWN = tuple(str(Path(__file__).parents[2] / name) + os.sep for name in ("mmrl", "tasks", "sims"))


class ConfigError(ValueError):
    """An argument, key or value of the configuration that cannot be used; the message says which and what to do."""


def is_user_error(error: BaseException) -> bool:
    """Whether a `raise` statement of mmrl, tasks or sims raised the error: then its text is written for the user."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename.startswith(OWN) and (frames[-1].line or "").startswith("raise ")


def check_fraction(part: str, /, **values: float) -> None:
    """Refuse numbers outside [0, 1]; arguments as of `check_interval`."""
    check_interval(part, "[0, 1]", **values)


def check_positive(part: str, /, **values: float) -> None:
    """Refuse numbers that are not above 0; arguments as of `check_interval`."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{_join(part, name)} must be > 0, got {value}")


def check_at_least(least: float, part: str, /, **values: float) -> None:
    """Refuse numbers below `least`; further arguments as of `check_interval`."""
    for name, value in values.items():
        if not value >= least:
            raise ValueError(f"{_join(part, name)} must be at least {least:g}, got {value}")


def check_interval(part: str, interval: str, /, **values: float) -> None:
    """Refuse numbers outside an interval, NaN included.

    Args:
        part: what the numbers are arguments of, as "gae" or "data.replay"; with a colon ("task 'sums':") a blank in
            place of the dot stands before their names.
        interval: as one writes it, "(0, 1]"; a round bracket excludes its end.
        values: numbers by the name of their argument.

    Raises:
        ValueError: PART.NAME must be in INTERVAL, got VALUE.
    """
    low, high = map(float, interval[1:-1].split(","))
    for name, value in values.items():
        above = value > low if interval[0] == "(" else value >= low
        below = value < high if interval[-1] == ")" else value <= high
        if not (above and below):
            raise ValueError(f"{_join(part, name)} must be in {interval}, got {value}")


def _join(part: str, name: str) -> str:
    return f"{part} {name}" if part.endswith(":") else f"{part}.{name}"
