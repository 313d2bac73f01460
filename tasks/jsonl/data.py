"""Read and check the rows of a JSON Lines file."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mmrl.strict_json import MAX_DIGITS, kind, parse_json, quote
from tasks.images import image_path, image_sizes
from tasks.jsonl.verify import number

_REMEDY = "write one complete object per line"
_NUMBER = re.compile(r"[+-]?[0-9]*\.?[0-9]*(?:e[+-]?[0-9]+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Columns:
    """Keys of a row that hold the question, the answer and the image."""

    question: str
    answer: str
    image: str | None


@dataclass(frozen=True)
class Images:
    """Folder of the images, and their size limit."""

    folder: Path | None  # None for the folder of the JSON Lines file
    max_pixels: int


@dataclass(frozen=True)
class Row:
    """One problem and its line in the file."""

    place: str  # "file:line", for messages
    question: str
    answer: str
    image: Path | None = None
    image_size: tuple[int, int] | None = None  # (height, width)


@dataclass(frozen=True)
class Version:
    """Identity of a file's content, so that a changed file is read again."""

    file: Path
    modified_ns: int
    size_bytes: int


def version(path: str, part: str) -> Version:
    """Current version of the file at `path`; `part` names the setting that gave the path."""
    try:
        file = Path(path).expanduser().resolve()
        there = file.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a zero byte, a loop of links, an unknown user
        reason = getattr(error, "strerror", None) or str(error)[:100]
        raise FileNotFoundError(
            f"task 'jsonl': {quote(Path(path).name)} is no path of a file ({reason}); set {part} to a JSON Lines file"
        ) from error
    if not there:
        raise FileNotFoundError(f"task 'jsonl': there is no file {file}; set {part} to a JSON Lines file")
    stat = file.stat()
    return Version(file, stat.st_mtime_ns, stat.st_size)


def read(file: Path, columns: Columns, images: Images) -> tuple[Row, ...]:
    """Read all rows of the file in order without blank lines, and decode every image once."""
    try:
        text = file.read_bytes()
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror}); copy it again or change its rights") from error
    folder = file.parent if images.folder is None else images.folder
    rows = []
    for line_number, line in enumerate(text.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            rows.append(_row(line, f"{file}:{line_number}", folder, columns))
    if not rows:
        raise ValueError(f"{file} has no rows; write one JSON object per line")
    places = {row.image: row.place for row in reversed(rows) if row.image is not None}
    sizes = image_sizes(dict(reversed(places.items())), images.max_pixels)
    return tuple(row if row.image is None else replace(row, image_size=sizes[row.image]) for row in rows)


def _row(line: bytes, place: str, folder: Path, columns: Columns) -> Row:
    record = parse_json(line, place, _REMEDY, finite=False)
    if not isinstance(record, dict):
        raise ValueError(f"{place}: the line is {kind(record)}, not an object with named columns; {_REMEDY}")
    question = _column(record, columns.question, "question", place)
    if not isinstance(question, str):
        raise ValueError(f"{place}: column {columns.question!r} must be text, got {quote(question)}")
    answer = _column(record, columns.answer, "answer", place)
    image = None if columns.image is None else _image(record, columns.image, place, folder)
    return Row(place, question, _answer_text(answer, columns.answer, place), image)


def _column(record: dict[str, Any], name: str, role: str, place: str) -> Any:
    value = record.get(name)
    if name not in record:
        raise ValueError(
            f"{place}: column {name!r} is missing, the row has {quote(sorted(record))}; "
            f"add it or set task.{role} to the column that holds the {role}"
        )
    if value is None or (isinstance(value, str) and not value.strip()):
        raise ValueError(f"{place}: column {name!r} is empty; fill in the {role} or delete the row")
    return value


def _answer_text(value: Any, name: str, place: str) -> str:
    real = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not (real or isinstance(value, str)):
        raise ValueError(f"{place}: column {name!r} must be text or a finite number, got {quote(value)}")
    text = str(value)
    digits = text.strip()
    if not digits or not _NUMBER.fullmatch(digits) or number(digits.lower()) is not None:
        return text
    if "e" in digits.lower():
        raise ValueError(
            f"{place}: column {name!r} is {quote(digits)}, a number that replies cannot be compared with: at most two "
            "digits may stand in the exponent and 40 on each side of the point; write it in another way"
        )
    if len(digits) > MAX_DIGITS:
        raise ValueError(
            f"{place}: column {name!r} is a number of {len(digits)} digits, more than {MAX_DIGITS}; shorten the answer"
        )
    return text  # of more than 40 digits: compared as text


def _image(record: dict[str, Any], name: str, place: str, folder: Path) -> Path:
    value = _column(record, name, "image", place)
    if not isinstance(value, str):
        raise ValueError(f"{place}: column {name!r} must be the path of an image file, got {quote(value)}")
    return image_path(folder, value, f"{place}: column {name!r}")
