"""Simulator contract: settings that must be equal where runs and results are combined; stored and compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from mmrl.files.atomic import write_file
from mmrl.files.strict_json import read_json_object

NAME = "contract.json"
ENVIRONMENT = "environment.json"

_SHOWN, _WIDTH = 6, 140  # lines printed of a long list, and characters printed of a long line


def write_contract(folder: str | Path, stated: Mapping[str, Any], name: str = NAME) -> None:
    """Write the simulator's contract, or the installed versions, into the run's folder."""
    path = Path(folder) / name
    write_file(path, json.dumps(stated, indent=2) + "\n")


def read_contract(folder: str | Path, name: str = NAME) -> dict[str, Any] | None:
    """Read the contract that the run started with; None if there is none. A broken file is refused by name."""
    path = Path(folder) / name
    remedy = "copy the run's folder again"
    if name == ENVIRONMENT:
        remedy += ", or delete this file: it only says which versions the run was trained with"
    return read_json_object(path, remedy, finite=False) if path.exists() else None


def differences(
    expected: Mapping[str, Any], actual: Mapping[str, Any], then: str = "in training", now: str = "here"
) -> list[str]:
    """List the entries that differ, one line each, nested ones by their path.

    Values are compared as JSON stores them.

    Args:
        expected: the recorded contract.
        actual: the present contract.
        then: where the recorded value holds, for the line.
        now: where the other one does.
    """
    before, after = flatten_entries(expected), flatten_entries(actual)
    lines = []
    for name in sorted(before.keys() | after.keys()):
        old, new = (format_value(flat[name]) if name in flat else "not stated" for flat in (before, after))
        if old != new:
            lines.append(f"{name}: {old} {then}, {new} {now}")
    return lines


def flatten_entries(stated: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested entries to their paths, as in suite.renderer."""
    flat: dict[str, Any] = {}
    for name, value in stated.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten_entries(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def format_value(value: Any) -> str:
    """Format one entry on one line, the same for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def warn(headline: str, lines: Sequence[str], console: Console | None = None) -> None:
    """Print the differences in red, one line per entry; without colour where there is no terminal."""
    console = console or Console(stderr=True, markup=False, emoji=False)
    console.print(headline, style="bold red", markup=False, highlight=False, soft_wrap=True)
    for line in [*lines[:_SHOWN], *([f"... and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else [])]:
        line = line if len(line) <= _WIDTH else f"{line[:_WIDTH]}..."
        console.print(f"  {line}", style="red", markup=False, highlight=False, soft_wrap=True)
