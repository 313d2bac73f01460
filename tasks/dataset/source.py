"""Where a table is, and its rows by number."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrl.files.strict_json import quote

Record = dict[str, Any]
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")
_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow")


@dataclass(frozen=True)
class TableSource:
    """Where a table is: a file, a folder or hub id for `datasets`, and the version of a file's content.

    Args:
        path: of a file or folder, or a hub id.
        subset: configuration of the data set on the hub.
        split: of a data set on the hub or of a folder with several.
        version: modification time in ns and size in bytes, so that a changed file is read again.
    """

    path: str
    subset: str | None
    split: str | None
    version: tuple[int, int]

    @property
    def folder(self) -> Path:
        """Folder at which paths of images start; the whole disk for `datasets`, which writes absolute paths."""
        return Path(self.path).parent if Path(self.path).is_file() else Path("/")

    @property
    def filled(self) -> bool:
        """Whether entries that are missing stand as None inside of structures, as Arrow stores them."""
        return not self.path.endswith((".jsonl", ".ndjson", ".json", ".csv", ".tsv"))


def find_source(path: str, subset: str | None, split: str | None, setting: str) -> TableSource:
    """Find a file, a folder or a hub id; raises FileNotFoundError with the name of the setting."""
    try:
        file = Path(path).expanduser().resolve()
        exists = file.exists()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a zero byte, a loop of links, an unknown user
        reason = getattr(error, "strerror", None) or str(error)[:100]
        raise FileNotFoundError(
            f"task 'dataset': {quote(Path(path).name)} is no path of a file ({reason}); set {setting} to a file of rows"
        ) from error
    if file.is_file() or (file.is_dir() and _is_loadable(file)):
        stat = file.stat()
        return TableSource(str(file), subset, split, (stat.st_mtime_ns, stat.st_size))
    if exists or path.endswith(_SUFFIXES) or not _HUB_ID.fullmatch(path):
        raise FileNotFoundError(
            f"task 'dataset': there is no file {file}; set {setting} to a file (JSON Lines, CSV, parquet, Arrow), to a "
            "folder that `datasets` saved, or to a hub id"
        )
    return TableSource(path, subset, split, (0, 0))


def _is_loadable(folder: Path) -> bool:
    """Whether `datasets` can read a folder: saved by it, or with files of rows in it."""
    if any((folder / name).is_file() for name in ("state.json", "dataset_dict.json")):
        return True
    return any(
        file.suffix in _SUFFIXES and file.is_file() for pattern in ("*", "data/*") for file in folder.glob(pattern)
    )


class RowTable(ABC):
    """Rows by number. Only the rows that are asked for are Python objects."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def place(self, index: int) -> str:
        """File and row, for messages."""

    @abstractmethod
    def record(self, index: int) -> Record: ...

    def records(self) -> Iterator[Record]:
        """All rows in order."""
        return map(self.record, range(len(self)))
