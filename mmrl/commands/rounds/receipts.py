"""What a rounds folder remembers: the file that it runs, and a receipt of every step that has ended."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mmrl.commands.rounds.file import HEADERS, RoundsFile
from mmrl.commands.rounds.rows import NAME as ROWS
from mmrl.commands.rounds.rows import hash_file
from mmrl.core.errors import ConfigError
from mmrl.files.atomic import replace_file

FILE = "rounds.yaml"
RECEIPT = "stage.json"


@dataclass(frozen=True)
class Receipt:
    """Result of a step that has ended.

    Args:
        weights: the checkpoint that a later step takes from it, below the folder of the rounds; None for the policy as
            it is configured, and for steps that are no fit.
        rows: hash of its rows; None for a step without rows.
        result: numbers for the table, the same whenever the step runs.
        note: why the step was skipped, or what a written program came to; else empty.
    """

    weights: str | None = None
    rows: str | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


def write_receipt(folder: Path, receipt: Receipt) -> Receipt:
    """Write a step's receipt, after everything else that it writes."""
    with replace_file(folder / RECEIPT) as file:
        file.write((json.dumps(receipt.__dict__, indent=2) + "\n").encode())
    return receipt


def read_receipt(folder: Path) -> Receipt | None:
    """Read a step's receipt; None for a step that has not ended."""
    path = folder / RECEIPT
    return Receipt(**json.loads(path.read_text())) if path.is_file() else None


def check_rows(folder: Path, receipt: Receipt, place: str) -> Path:
    """Return the file with a step's rows; refuse one that has changed since it was written."""
    path = folder / ROWS
    if not path.is_file() or hash_file(path) != receipt.rows:
        raise ConfigError(
            f"{place}: {path} is {'not what was written' if path.is_file() else 'missing'}, and later stages stand on "
            f"it; restore the file, or begin again in another run_dir"
        )
    return path


def check_same_file(run_dir: Path, file: RoundsFile) -> bool:
    """Compare the file with that of the rounds in the folder; returns whether it is the same, checked before.

    More rounds than before are allowed, since all earlier steps stay what they are.

    Raises:
        ConfigError: naming the first key that has changed.
    """
    path, plain = run_dir / FILE, _plain(file)
    before = yaml.safe_load(path.read_text()) if path.is_file() else None
    if before is not None:
        for key, old, new in _differences(before, plain):
            if key != "rounds" or new < old:
                raise ConfigError(
                    f"run_dir={run_dir} holds rounds with another {key}: {old!r} before, now {new!r}; give the value "
                    "of before to resume, or another run_dir to begin again"
                )
    return before is not None and before["rounds"] == plain["rounds"]


def record_file(run_dir: Path, file: RoundsFile) -> None:
    """Write the file, with the overrides of the command line, into the folder."""
    with replace_file(run_dir / FILE) as stream:
        stream.write(yaml.safe_dump(_plain(file), sort_keys=False, allow_unicode=True).encode())


def _plain(file: RoundsFile) -> dict[str, Any]:
    values = {key: value for key, value in file.values.items() if key not in (*HEADERS, "run_dir")}
    return json.loads(json.dumps({**values, "words": list(file.words)}))


def _differences(old: Any, new: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (key, old value, new value) of what differs, with keys as on the command line."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from _differences(old.get(name), new.get(name), f"{key}.{name}" if key else str(name))
        if list(old) != list(new) and old == new:
            yield f"{key} (order of its stages)", list(old), list(new)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new)):
            yield from _differences(*pair, f"{key}[{number}]")
    elif old != new or type(old) is not type(new):
        yield key, old, new
