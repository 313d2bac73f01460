"""Tables on disk, read row by row: JSON Lines, JSON, CSV, parquet, Arrow, and what `datasets` loads."""

from __future__ import annotations

import csv
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.strict_json import kind, parse_json, quote

Record = dict[str, Any]
_REMEDY = "write one complete object per line"
_BATCH = 256  # rows that are turned into Python objects at a time
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")
_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow")


@dataclass(frozen=True)
class Source:
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


def find_source(path: str, subset: str | None, split: str | None, setting: str) -> Source:
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
        return Source(str(file), subset, split, (stat.st_mtime_ns, stat.st_size))
    if exists or path.endswith(_SUFFIXES) or not _HUB_ID.fullmatch(path):
        raise FileNotFoundError(
            f"task 'dataset': there is no file {file}; set {setting} to a file (JSON Lines, CSV, parquet, Arrow), to a "
            "folder that `datasets` saved, or to a hub id"
        )
    return Source(path, subset, split, (0, 0))


def _is_loadable(folder: Path) -> bool:
    """Whether `datasets` can read a folder: saved by it, or with files of rows in it."""
    if any((folder / name).is_file() for name in ("state.json", "dataset_dict.json")):
        return True
    return any(
        file.suffix in _SUFFIXES and file.is_file() for pattern in ("*", "data/*") for file in folder.glob(pattern)
    )


class Table(ABC):
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


class JsonLines(Table):
    """One JSON object per line; blank lines are left out. Holds the position of every line."""

    def __init__(self, file: Path):
        self.file = file
        starts, numbers, position = [], [], 0
        with open(file, "rb") as stream:
            for number, line in enumerate(stream, start=1):
                if line.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").strip():
                    starts.append(position)
                    numbers.append(number)
                position += len(line)
        self.starts, self.numbers = np.array(starts, np.int64), np.array(numbers, np.int64)

    def __len__(self) -> int:
        return len(self.starts)

    def place(self, index: int) -> str:
        return f"{self.file}:{self.numbers[index]}"

    def record(self, index: int) -> Record:
        with open(self.file, "rb") as stream:
            stream.seek(self.starts[index])
            return _parse(stream.readline(), self.place(index))

    def records(self) -> Iterator[Record]:
        with open(self.file, "rb") as stream:
            for index, number in enumerate(self.numbers):
                stream.seek(self.starts[index])
                yield _parse(stream.readline(), f"{self.file}:{number}")


def _parse(line: bytes, place: str) -> Record:
    record = parse_json(line.removesuffix(b"\n"), place, _REMEDY, finite=False)
    if not isinstance(record, dict):
        raise ValueError(f"{place}: the line is {kind(record)}, not an object with named columns; {_REMEDY}")
    return record


class Listed(Table):
    """Rows in memory: of a CSV file, or of a JSON file that is a list."""

    def __init__(self, file: Path, columns: tuple[str, ...], rows: list[tuple[Any, ...]], places: list[int]):
        self.file, self.columns, self.rows, self.places = file, columns, rows, places

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, index: int) -> str:
        return f"{self.file}:{self.places[index]}"

    def record(self, index: int) -> Record:
        return dict(zip(self.columns, self.rows[index]))


def read_csv(file: Path) -> Table:
    """Read a CSV file (or TSV) with a header; every value is a text."""
    rows, places, reader = [], [], None
    try:
        with open(file, encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, delimiter="\t" if file.suffix == ".tsv" else ",", strict=True)
            header = tuple(name.strip() for name in next(reader, ()))
            if len(set(header)) < len(header) or "" in header:
                raise ValueError(f"{file}:1: the header must name every column once, got {quote(list(header))}; rename")
            for row in reader:
                if row and len(row) != len(header):
                    raise ValueError(
                        f"{file}:{reader.line_num}: {len(row)} values, but the header names {len(header)} columns; put "
                        "values with commas, quotes or line ends into double quotes, or write JSON Lines"
                    )
                if row:
                    rows.append(tuple(row))
                    places.append(reader.line_num)
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not UTF-8 text (byte {error.start}); save the file as UTF-8") from error
    except csv.Error as error:
        line = reader.line_num if reader is not None else 1
        raise ValueError(f"{file}:{line}: broken CSV ({error}); correct the line, or write JSON Lines") from error
    return Listed(file, header, rows, places)


class JsonList(Table):
    """A JSON file that is a list of objects."""

    def __init__(self, file: Path):
        self.file = file
        self.rows = parse_json(file.read_bytes(), str(file), "write a list of objects, or one object per line", False)

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, index: int) -> str:
        return f"{self.file}:row {index + 1}"

    def record(self, index: int) -> Record:
        row = self.rows[index]
        if not isinstance(row, dict):
            raise ValueError(f"{self.place(index)}: is {kind(row)}, not an object with named columns; {_REMEDY}")
        return row


class Parquet(Table):
    """A parquet file; the row groups that were used last are in memory."""

    def __init__(self, source: Source):
        self.source, self.file = source, Path(source.path)
        with _arrow_errors(self.file, "parquet"):
            opened = _parquet_file(source)
            metadata = opened.metadata
            _check_names(self.file, opened.schema_arrow.names)
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self.starts = [sum(sizes[:group]) for group in range(len(sizes))]
        self.rows = metadata.num_rows

    def __len__(self) -> int:
        return self.rows

    def place(self, index: int) -> str:
        return f"{self.file}:row {index + 1}"

    def record(self, index: int) -> Record:
        group = bisect_right(self.starts, index) - 1
        with _arrow_errors(self.file, "parquet"):
            return _row_group(self.source, group).slice(index - self.starts[group], 1).to_pylist()[0]

    def records(self) -> Iterator[Record]:
        with _arrow_errors(self.file, "parquet"):
            for batch in _parquet_file(self.source).iter_batches(batch_size=_BATCH):
                yield from batch.to_pylist()


@lru_cache(maxsize=4)
def _row_group(source: Source, group: int) -> Any:
    return _parquet_file(source).read_row_group(group)


def _parquet_file(source: Source) -> Any:
    parquet = _import("pyarrow.parquet", source.path, "data")
    return parquet.ParquetFile(source.path, memory_map=True)


class Arrow(Table):
    """A file in Arrow's stream or file format, mapped into memory."""

    def __init__(self, file: Path):
        pyarrow = _import("pyarrow", str(file), "data")
        ipc = _import("pyarrow.ipc", str(file), "data")
        self.file = file
        with _arrow_errors(file, "Arrow"):
            mapped = pyarrow.memory_map(str(file))
            try:
                self.table = ipc.open_file(mapped).read_all()
            except pyarrow.ArrowInvalid:
                self.table = ipc.open_stream(pyarrow.memory_map(str(file))).read_all()
        _check_names(file, self.table.column_names)

    def __len__(self) -> int:
        return self.table.num_rows

    def place(self, index: int) -> str:
        return f"{self.file}:row {index + 1}"

    def record(self, index: int) -> Record:
        with _arrow_errors(self.file, "Arrow"):
            return self.table.slice(index, 1).to_pylist()[0]

    def records(self) -> Iterator[Record]:
        with _arrow_errors(self.file, "Arrow"):
            for batch in self.table.to_batches(max_chunksize=_BATCH):
                yield from batch.to_pylist()


class Loaded(Table):
    """A data set of the library `datasets`: from the hub, or from a folder."""

    def __init__(self, source: Source):
        datasets = _import("datasets", source.path, "datasets")
        self.source = source
        saved = Path(source.path, "state.json").is_file() or Path(source.path, "dataset_dict.json").is_file()
        try:
            if saved:
                loaded = datasets.load_from_disk(source.path)
                if isinstance(loaded, datasets.DatasetDict):
                    loaded = loaded[source.split]
            else:
                loaded = datasets.load_dataset(source.path, name=source.subset, split=source.split)
        except Exception as error:  # many kinds: of the hub, of the network, of files
            reason = " ".join(str(error).split())[:200]
            raise ValueError(
                f"task 'dataset': `datasets` cannot load {source.path} (subset {source.subset}, split {source.split}): "
                f"{type(error).__name__}: {reason}; set task.path, task.subset and task.train_split"
            ) from error
        self.rows = loaded.with_format("arrow")

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, index: int) -> str:
        return f"{self.source.path} ({self.source.split}):row {index + 1}"

    def record(self, index: int) -> Record:
        return self.rows[index : index + 1].to_pylist()[0]

    def records(self) -> Iterator[Record]:
        for batch in self.rows.iter(batch_size=_BATCH):
            yield from batch.to_pylist()


@lru_cache(maxsize=8)
def open_table(source: Source) -> Table:
    """Open a table by the ending of its file; a file with another ending is read as JSON Lines."""
    file = Path(source.path)
    if not file.is_file():
        return Loaded(source)
    try:
        if file.suffix in (".csv", ".tsv"):
            table = read_csv(file)
        elif file.suffix == ".parquet":
            table = Parquet(source)
        elif file.suffix == ".arrow":
            table = Arrow(file)
        elif file.suffix == ".json" and _starts_list(file):
            table = JsonList(file)
        else:
            table = JsonLines(file)
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror}); copy it again or change its rights") from error
    if not len(table):
        raise ValueError(f"{file} has no rows; write one JSON object per line, or another table with rows")
    return table


def _starts_list(file: Path) -> bool:
    with open(file, "rb") as stream:
        return stream.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def _check_names(file: Path, names: list[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{file}: column {twice[0]!r} stands twice; rename one of them")


def _import(name: str, path: str, extra: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        raise ModuleNotFoundError(
            f"task 'dataset': {path} needs {package}: pip install {package} (extra {extra!r} of mmrl)"
        ) from error


@contextmanager
def _arrow_errors(file: Path, form: str) -> Iterator[None]:
    """Raise ValueError for a file that pyarrow cannot read."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{file}: not a readable {form} file ({reason}); copy it again") from error
