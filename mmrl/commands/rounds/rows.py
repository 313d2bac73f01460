"""Rows of data stages: JSON Lines, one completion or one preference pair a line, written as a whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmrl.core.types import Episode
from mmrl.files.atomic import replace_file

NAME = "rows.jsonl"
Row = Mapping[str, Any]


def build_row(episode: Episode, text: str) -> dict[str, Any]:
    """Convert a scored episode of one answer to a row of plain values."""
    prompt = episode.prompt
    return {
        "key": prompt.key,
        "index": prompt.index,
        "sample_index": episode.sample_index,
        "prompt": list(prompt.messages),
        "completion": text,
        "ended": episode.ended,
        "tokens": episode.info.get("tokens", episode.tokens),
        "scores": {name: float(value) for name, value in episode.scores.items()},
        "reward": float(episode.reward),
        **({"prompt_end": episode.info["prompt_end"]} if "prompt_end" in episode.info else {}),
    }


def write_rows(path: Path, rows: Iterable[Row]) -> str:
    """Write rows in place of the file, whole or not at all; returns the hash of its bytes."""
    digest = hashlib.sha256()
    with replace_file(path) as file:
        for row in rows:
            line = (json.dumps(row, ensure_ascii=False) + "\n").encode()
            digest.update(line)
            file.write(line)
    return digest.hexdigest()


def join_parts(path: Path, parts: Sequence[Path]) -> str:
    """Write the rows of parts one after the other; returns the hash of all bytes."""
    digest = hashlib.sha256()
    with replace_file(path) as file:
        for part in parts:
            content = part.read_bytes()
            digest.update(content)
            file.write(content)
    return digest.hexdigest()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read all rows of a file."""
    with path.open("rb") as file:
        return [json.loads(line) for line in file]


def hash_file(path: Path) -> str:
    """Compute the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def group_rows(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Group rows by problem, in the order of the first row of each."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["key"], []).append(row)
    return groups
