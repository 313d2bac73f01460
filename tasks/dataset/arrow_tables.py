"""Tables that pyarrow or `datasets` reads: parquet, Arrow, and data sets of the hub or of a folder."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.core.installation.optional_packages import import_optional
from mmrl.files.foreign import check_stated
from tasks.dataset.source import Record, RowTable, TableSource

_SHORT = {"halffloat": np.float16, "float": np.float32}  # by the names of pyarrow's types
_BATCH = 256  # rows that are turned into Python objects at a time


class Parquet(RowTable):
    """A parquet file; the row groups that were used last are in memory."""

    def __init__(self, source: TableSource):
        self.source, self.file = source, Path(source.path)
        with _arrow_errors(self.file, "parquet"):
            opened = _parquet_file(source)
            metadata = opened.metadata
            self.classes = find_classes(opened.schema_arrow)
            _check_names(self.file, opened.schema_arrow.names)
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        stated = max((group.total_byte_size for group in groups), default=0)
        check_stated(stated, source.version[1], str(self.file), "copy it again")
        sizes = [group.num_rows for group in groups]
        self.starts = [sum(sizes[:group]) for group in range(len(sizes))]
        self.rows = metadata.num_rows

    def __len__(self) -> int:
        return self.rows

    def place(self, index: int) -> str:
        return f"{self.file}:row {index + 1}"

    def record(self, index: int) -> Record:
        group = bisect_right(self.starts, index) - 1
        with _arrow_errors(self.file, "parquet"):
            rows = _row_group(self.source, group).slice(index - self.starts[group], 1)
            return _read_records(rows, self.classes)[0]

    def records(self) -> Iterator[Record]:
        with _arrow_errors(self.file, "parquet"):
            for batch in _parquet_file(self.source).iter_batches(batch_size=_BATCH):
                yield from _read_records(batch, self.classes)


@lru_cache(maxsize=4)
def _row_group(source: TableSource, group: int) -> Any:
    return _parquet_file(source).read_row_group(group)


def _parquet_file(source: TableSource) -> Any:
    parquet = _import("pyarrow.parquet", source.path)
    return parquet.ParquetFile(source.path, memory_map=True)


class Arrow(RowTable):
    """A file in Arrow's stream or file format, mapped into memory."""

    def __init__(self, file: Path):
        pyarrow = _import("pyarrow", str(file))
        ipc = _import("pyarrow.ipc", str(file))
        self.file = file
        with _arrow_errors(file, "Arrow"):
            mapped = pyarrow.memory_map(str(file))
            try:
                self.table = ipc.open_file(mapped).read_all()
            except pyarrow.ArrowInvalid:
                self.table = ipc.open_stream(pyarrow.memory_map(str(file))).read_all()
            self.table.validate(full=True)  # offsets that lead outside of the file would end the process
        self.classes = find_classes(self.table.schema)
        _check_names(file, self.table.column_names)

    def __len__(self) -> int:
        return self.table.num_rows

    def place(self, index: int) -> str:
        return f"{self.file}:row {index + 1}"

    def record(self, index: int) -> Record:
        with _arrow_errors(self.file, "Arrow"):
            return _read_records(self.table.slice(index, 1), self.classes)[0]

    def records(self) -> Iterator[Record]:
        with _arrow_errors(self.file, "Arrow"):
            for batch in self.table.to_batches(max_chunksize=_BATCH):
                yield from _read_records(batch, self.classes)


class Loaded(RowTable):
    """A data set of the library `datasets`: from the hub, or from a folder."""

    def __init__(self, source: TableSource):
        datasets = _import("datasets", source.path)
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
        self.classes = find_classes(loaded.features.arrow_schema)
        if saved:
            with _arrow_errors(Path(source.path), "Arrow"):
                loaded.data.table.validate(full=True)
        self.rows = loaded.with_format("arrow")

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, index: int) -> str:
        return f"{self.source.path} ({self.source.split}):row {index + 1}"

    def record(self, index: int) -> Record:
        return _read_records(self.rows[index : index + 1], self.classes)[0]

    def records(self) -> Iterator[Record]:
        for batch in self.rows.iter(batch_size=_BATCH):
            yield from _read_records(batch, self.classes)


Classes = dict[str, list[str]]
"""Names of the classes of a column, by its name: the number that the column holds is the position."""


def find_classes(schema: Any) -> Classes:
    """Names of classes (`datasets.ClassLabel`) that `datasets` wrote into the schema of a table."""
    try:
        stored = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = stored["info"]["features"]
        labels = {name: each for name, each in features.items() if each.get("_type") == "ClassLabel"}
        return {name: each["names"] for name, each in labels.items() if isinstance(each.get("names"), list)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}  # the numbers stay


def _read_records(rows: Any, classes: Classes) -> list[Record]:
    """Convert a table or a batch to Python objects.

    0.1 of 32 bits is 0.1, not 0.10000000149011612. The number of a class becomes its name, and -1, no class, None.
    """
    short = [column for column in rows.schema if _has_short_floats(column.type)]
    records = rows.to_pylist()
    for record in records if short else ():
        record |= {column.name: _shorten(record[column.name], column.type) for column in short}
    for name, names in classes.items():
        for record in records:
            number = record.get(name)
            if isinstance(number, int) and -1 <= number < len(names):
                record[name] = None if number == -1 else str(names[number])
    return records


def _has_short_floats(kind: Any) -> bool:
    return str(kind) in _SHORT or any(_has_short_floats(kind.field(i).type) for i in range(kind.num_fields))


def _shorten(value: Any, kind: Any) -> Any:
    """Return the shortest decimal number of each float of 16 or 32 bits, also in lists and structures."""
    if isinstance(value, float) and str(kind) in _SHORT:
        return float(str(_SHORT[str(kind)](value)))
    if isinstance(value, dict):
        return {name: _shorten(entry, kind.field(name).type) for name, entry in value.items()}
    if isinstance(value, list) and hasattr(kind, "value_type"):
        return [_shorten(entry, kind.value_type) for entry in value]
    return value


def _check_names(file: Path, names: list[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{file}: column {twice[0]!r} stands twice; rename one of them")


def _import(name: str, path: str) -> Any:
    return import_optional(name, f"task 'dataset': {path}")


@contextmanager
def _arrow_errors(file: Path, form: str) -> Iterator[None]:
    """Raise ValueError for a file that pyarrow cannot read."""
    pyarrow = _import("pyarrow", str(file))
    try:
        yield
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{file}: not a readable {form} file ({reason}); copy it again") from error
