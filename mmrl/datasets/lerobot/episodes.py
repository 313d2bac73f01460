"""Read meta/episodes of a LeRobotDataset: the files and rows of each episode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from mmrl.datasets.lerobot.table import open_table, read_table
from mmrl.files.strict_json import quote

_PLACE = ("episode_index", "length", "data/chunk_index", "data/file_index")
_VIDEO = ("chunk_index", "file_index")
_REMEDY = "copy the dataset again from its source"


def read_episodes(
    folder: Path, info: Mapping[str, Any], info_file: Path, videos: Iterable[str]
) -> list[dict[str, Any]]:
    """Read the entries, sorted by episode, without per-episode statistics.

    Args:
        folder: folder of the dataset.
        info: content of meta/info.json.
        info_file: path of meta/info.json, for error messages.
        videos: columns that are stored in video files.
    """
    paths = sorted(folder.glob("meta/episodes/*/*.parquet"))
    if not paths:
        raise ValueError(f"{folder}: no meta/episodes/chunk-000/file-000.parquet; the recording was not closed")
    entries: list[dict[str, Any]] = []
    for path in paths:
        names = [name for name in open_table(path).schema_arrow.names if not name.startswith("stats/")]
        needed = [*_PLACE, *(f"videos/{key}/{part}" for key in videos for part in (*_VIDEO, "from_timestamp"))]
        if absent := [name for name in needed if name not in names]:
            raise ValueError(f"{path}: columns {absent[:4]} are missing; {_REMEDY}")
        for entry in read_table(path, names).to_pylist():
            _check(entry, [name for name in needed if not name.endswith("from_timestamp")], path)
            entries.append(entry)
    if not entries:
        raise ValueError(f"{folder}: meta/episodes has no rows, so there is no episode; {_REMEDY}")
    entries.sort(key=lambda entry: entry["episode_index"])
    numbers = [entry["episode_index"] for entry in entries]
    if len(set(numbers)) < len(numbers):
        twice = next(a for a, b in pairwise(numbers) if a == b)
        raise ValueError(f"{folder}: meta/episodes has episode {twice} twice; {_REMEDY}")
    for name, count in {"episodes": len(entries), "frames": sum(e["length"] for e in entries)}.items():
        if info.get(f"total_{name}", count) != count:
            text = quote(info[f"total_{name}"])
            raise ValueError(f"{info_file}: total_{name} is {text}, meta/episodes has {count}; {_REMEDY}")
    return entries


def _check(entry: Mapping[str, Any], whole: Iterable[str], path: Path) -> None:
    for name in whole:
        value = entry[name]
        if not isinstance(value, int) or value < (name == "length"):
            raise ValueError(
                f"{path}: {name} of episode {quote(entry['episode_index'])} is {quote(value)}, not a whole number of "
                f"at least {int(name == 'length')}; {_REMEDY}"
            )
