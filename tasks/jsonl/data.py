"""Rows of a JSON Lines file, each checked before the first is used."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError


@dataclass(frozen=True)
class Columns:
    """Which keys of a row mean what."""

    question: str
    answer: str
    image: str | None


@dataclass(frozen=True)
class Row:
    """One problem and where it stands in the user's file."""

    place: str  # "file:line", for messages
    question: str
    answer: str
    image: Path | None = None


@dataclass(frozen=True)
class Version:
    """A file as it was at one time, so that a changed file is read again."""

    file: Path
    modified_ns: int
    size_bytes: int


def version(path: str, part: str) -> Version:
    """The file at `path` as it is now; `part` names the setting that gave the path."""
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise FileNotFoundError(f"task 'jsonl': there is no file {file}; set {part} to a JSON Lines file")
    stat = file.stat()
    return Version(file, stat.st_mtime_ns, stat.st_size)


def read(file: Path, columns: Columns) -> tuple[Row, ...]:
    """All rows of the file in order; blank lines are skipped."""
    rows = []
    for number, line in enumerate(file.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            rows.append(_row(line, f"{file}:{number}", file.parent, columns))
    if not rows:
        raise ValueError(f"{file} has no rows; write one JSON object per line")
    return tuple(rows)


def _row(line: bytes, place: str, folder: Path, columns: Columns) -> Row:
    try:
        record = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{place}: not UTF-8 text (byte {error.start}); save the file as UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{place}: broken JSON at character {error.colno}: {error.msg}; write one complete object per line"
        ) from error
    if not isinstance(record, dict):
        raise ValueError(f"{place}: the line is a {type(record).__name__}, not an object with named columns")
    question = _column(record, columns.question, "question", place)
    if not isinstance(question, str):
        raise ValueError(f"{place}: column {columns.question!r} must be text, got {question!r}")
    answer = _column(record, columns.answer, "answer", place)
    image = None if columns.image is None else _image(record, columns.image, place, folder)
    return Row(place, question, _answer_text(answer, columns.answer, place), image)


def _column(record: dict[str, Any], name: str, role: str, place: str) -> Any:
    value = record.get(name)
    if name not in record:
        raise ValueError(
            f"{place}: column {name!r} is missing, the row has {sorted(record)}; "
            f"add it or set task.{role} to the column that holds the {role}"
        )
    if value is None or (isinstance(value, str) and not value.strip()):
        raise ValueError(f"{place}: column {name!r} is empty; fill in the {role} or delete the row")
    return value


def _answer_text(value: Any, name: str, place: str) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not (number or isinstance(value, str)):
        raise ValueError(f"{place}: column {name!r} must be text or a finite number, got {value!r}")
    return str(value)


def _image(record: dict[str, Any], name: str, place: str, folder: Path) -> Path:
    value = _column(record, name, "image", place)
    if not isinstance(value, str):
        raise ValueError(f"{place}: column {name!r} must be the path of an image file, got {value!r}")
    found = folder / Path(value).expanduser()  # an absolute path stays as it is
    if not found.is_file():
        raise FileNotFoundError(
            f"{place}: column {name!r} names {found}, which does not exist; paths start at the JSON Lines file's folder"
        )
    return found


def load_image(path: Path, place: str) -> np.ndarray:
    """The image of the row at `place` as uint8 [height, width, 3]."""
    try:
        with Image.open(path) as image:
            return np.array(image.convert("RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"{place}: {path} cannot be read as an image ({error}); replace the file") from error
