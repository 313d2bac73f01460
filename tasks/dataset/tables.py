"""Tables on disk, read row by row: JSON Lines, JSON and CSV; opens the others by the ending of the file."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.files.foreign import read_foreign
from mmrl.files.strict_json import kind, parse_json, quote
from tasks.dataset.arrow_tables import Arrow, Loaded, Parquet
from tasks.dataset.source import Record, RowTable, TableSource

_REMEDY = "write one complete object per line"
_LONGEST_LINE, _LONGEST_LIST = 2**26, 2**31  # bytes of a line of JSON Lines, of a file that is one list


class JsonLines(RowTable):
    """One JSON object per line; blank lines are left out. Holds the position of every line."""

    def __init__(self, file: Path):
        self.file = file
        starts, numbers, position = [], [], 0
        with open(file, "rb") as stream:
            for number, line in enumerate(iter(lambda: stream.readline(_LONGEST_LINE + 1), b""), start=1):
                if len(line) > _LONGEST_LINE:
                    raise ValueError(f"{file}:{number}: a line of more than {_LONGEST_LINE:,} bytes; {_REMEDY}")
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


class Listed(RowTable):
    """Rows in memory: of a CSV file, or of a JSON file that is a list."""

    def __init__(self, file: Path, columns: tuple[str, ...], rows: list[tuple[Any, ...]], places: list[int]):
        self.file, self.columns, self.rows, self.places = file, columns, rows, places

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, index: int) -> str:
        return f"{self.file}:{self.places[index]}"

    def record(self, index: int) -> Record:
        return dict(zip(self.columns, self.rows[index]))


def read_csv(file: Path) -> RowTable:
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


class JsonList(RowTable):
    """A JSON file that is a list of objects."""

    def __init__(self, file: Path):
        self.file = file
        remedy = "write a list of objects, or one object per line"
        self.rows = parse_json(read_foreign(file, remedy, _LONGEST_LIST), str(file), remedy, False)

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, index: int) -> str:
        return f"{self.file}:row {index + 1}"

    def record(self, index: int) -> Record:
        row = self.rows[index]
        if not isinstance(row, dict):
            raise ValueError(f"{self.place(index)}: is {kind(row)}, not an object with named columns; {_REMEDY}")
        return row


@lru_cache(maxsize=8)
def open_table(source: TableSource) -> RowTable:
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
