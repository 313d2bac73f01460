"""Under which simulator a run was trained: its checkpoints are measured under the same one or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "contract.json"


def record(folder: str | Path, contract: Mapping[str, Any]) -> None:
    """Write what the task states into the run's folder."""
    path = Path(folder) / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(contract, indent=2) + "\n")


def recorded(folder: str | Path) -> dict[str, Any] | None:
    """What the task stated when the run began; None when the folder does not say."""
    path = Path(folder) / NAME
    return json.loads(path.read_text()) if path.exists() else None


def differences(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """One line per entry that is not the same. A contract read back from JSON equals the one that was written."""
    lines = []
    for name in sorted(expected.keys() | actual.keys()):
        then, now = (_shown(contract, name) for contract in (expected, actual))
        if then != now:
            lines.append(f"{name}: {then} in training, {now} here")
    return lines


def _shown(contract: Mapping[str, Any], name: str) -> str:
    return json.dumps(contract[name], sort_keys=True) if name in contract else "not stated"
