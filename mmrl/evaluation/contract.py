"""What must be the same wherever runs and results meet: written beside them, compared entry by entry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from mmrl.strict_json import read_json_object

NAME = "contract.json"
ENVIRONMENT = "environment.json"

_SHOWN, _WIDTH = 6, 140  # lines that are shown of a long list, and characters of a long line


def record(folder: str | Path, stated: Mapping[str, Any], name: str = NAME) -> None:
    """Write what the task states about its simulator, or what is installed, into the run's folder."""
    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(stated, indent=2) + "\n")


def recorded(folder: str | Path, name: str = NAME) -> dict[str, Any] | None:
    """What was stated when the run began; None when the folder does not say. A broken file is refused by name."""
    path = Path(folder) / name
    remedy = "copy the run's folder again"
    if name == ENVIRONMENT:
        remedy += ", or delete this file: it only says which versions the run was trained with"
    return read_json_object(path, remedy, finite=False) if path.exists() else None


def differences(
    expected: Mapping[str, Any], actual: Mapping[str, Any], then: str = "in training", now: str = "here"
) -> list[str]:
    """One line per entry that is not the same, nested ones by their path.

    A contract read back from JSON equals the one that was written.

    Args:
        expected: what was recorded.
        actual: what is at hand.
        then: where the recorded value holds, for the line.
        now: where the other one does.
    """
    before, after = entries(expected), entries(actual)
    lines = []
    for name in sorted(before.keys() | after.keys()):
        old, new = (shown(flat[name]) if name in flat else "not stated" for flat in (before, after))
        if old != new:
            lines.append(f"{name}: {old} {then}, {new} {now}")
    return lines


def entries(stated: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested entries by their path, as in suite.renderer."""
    flat: dict[str, Any] = {}
    for name, value in stated.items():
        if isinstance(value, Mapping) and value:
            flat |= entries(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def shown(value: Any) -> str:
    """One entry on one line, the same for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def warn(headline: str, lines: Sequence[str], console: Console | None = None) -> None:
    """Say in red what differs, a line for each entry; without colour where no terminal reads it."""
    console = console or Console(stderr=True)
    console.print(headline, style="bold red", markup=False, highlight=False, soft_wrap=True)
    for line in [*lines[:_SHOWN], *([f"... and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else [])]:
        line = line if len(line) <= _WIDTH else f"{line[:_WIDTH]}..."
        console.print(f"  {line}", style="red", markup=False, highlight=False, soft_wrap=True)
