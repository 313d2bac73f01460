"""Turn a row of a table into a problem: messages, images, the answer, and the other columns."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from mmrl.rewards.extract import build_extractor
from mmrl.rewards.numbers import parse_number
from mmrl.strict_json import MAX_DIGITS, quote
from tasks.dataset.media import Media, digest, read_images, read_videos
from tasks.dataset.messages import Message, lift_images, parts_of, place_media, read_message, split_marks
from tasks.dataset.source import Record
from tasks.dataset.template import fill_template

_NUMBER = re.compile(r"[+-]?[0-9]*\.?[0-9]*(?:e[+-]?[0-9]+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Columns:
    """Columns of a row; "a.b" is the entry b of the column a.

    Args:
        prompt: a text, which is the user's message, or a list of chat messages.
        answer: a text or a number; None for problems without one.
        images: an image or a list of them; None for text.
        videos: a video or a list of them; None for none.
        marks: whether <image> and <video> in a text say where they stand.
        optional: those of "images" and "videos" that a row may lack.
    """

    prompt: str = "question"
    answer: str | None = "answer"
    images: str | None = None
    videos: str | None = None
    marks: bool = False
    optional: frozenset[str] = frozenset()


FORMATS: Mapping[str, Columns] = {
    "questions": Columns(),
    "prompts": Columns("prompt", None, "images", optional=frozenset({"images"})),
    "conversations": Columns("messages", None, "images", optional=frozenset({"images"})),
    "trl": Columns("prompt", "solution", "images", optional=frozenset({"images"})),
    "verl": Columns("prompt", "reward_model.ground_truth", "images", "videos", True, frozenset({"images", "videos"})),
}
"""Columns by the name of a row format; of `prompts` a reward function judges the completions, of `conversations` the
last message is the answer."""


@dataclass(frozen=True)
class Layout:
    """How rows become problems.

    Args:
        columns: of a row.
        system: system message before prompts that have none; None for none.
        template: text of the user's message, with {column} for columns; None for the prompt column.
        answer_extract: extractor of the answer in its column, for example "marker" for "...#### 7".
        frames: of each video.
        folder: where paths of images start, and which they may not leave.
    """

    columns: Columns
    system: str | None
    template: str | None
    answer_extract: str | None  # an extractor as JSON, since a layout is hashed
    frames: int
    folder: Path


@dataclass(frozen=True)
class Problem:
    """One problem and its place in the table."""

    place: str  # "file:line", for messages
    messages: tuple[Message, ...]
    answer: str | None
    media: tuple[Media, ...]  # in the order of the image parts; a video has several parts
    info: dict[str, Any]

    def identity(self) -> bytes:
        """Hash that is equal for problems of equal words and equal images."""
        words = [w for message in self.messages for w in (message["role"], *map(_words, parts_of(message)))]
        return digest([*(word.encode() for word in words), *(media.identity() for media in self.media)])


def _words(part: Message) -> str:
    return " ".join(part.get("text", "").split())


def read_problem(record: Record, place: str, layout: Layout) -> Problem:
    """Read a row; raises ValueError with the place, the column and the remedy."""
    columns = layout.columns
    messages, spoken = _messages(record, place, layout)
    if columns.answer is not None:
        answer = _answer(record, columns.answer, layout.answer_extract, place)
    else:
        answer = spoken if spoken is None else _extract(spoken, layout.answer_extract, columns.prompt, place)
    images = _cell(record, columns.images, place, "images" in columns.optional)
    videos = _cell(record, columns.videos, place, "videos" in columns.optional)
    media = [
        *read_images(images, f"{place}: column {columns.images!r}", layout.folder),
        *read_videos(videos, f"{place}: column {columns.videos!r}", layout.folder, layout.frames),
    ]
    if columns.marks:
        messages = [split_marks(message) for message in messages]
    if media or any(not isinstance(message["content"], str) for message in messages):
        messages, media = lift_images(messages, media, place, layout.folder)
        messages, media = place_media(messages, media, place)
    asked = [any(map(_words, parts_of(message))) for message in messages if message["role"] == "user"]
    if asked and not media and not any(asked):
        raise ValueError(
            f"{place}: the user's messages in column {columns.prompt!r} are empty; fill in the prompt or delete the "
            "row (task.skip_bad=true)"
        )
    if layout.system is not None and all(message["role"] != "system" for message in messages):
        messages = [{"role": "system", "content": layout.system}, *messages]
    used = {columns.prompt, columns.images, columns.videos, "answer" if columns.answer == "answer" else None}
    info = {name: value for name, value in record.items() if name not in used and not isinstance(value, bytes)}
    return Problem(place, tuple(messages), answer, tuple(media), info)


def find_value(record: Record, name: str) -> Any:
    """Value of a column, or of "a.b" inside one; raises KeyError if it is missing."""
    if name in record:
        return record[name]
    value: Any = record
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise KeyError(name)
        value = value[part]
    return value


def _cell(record: Record, name: str | None, place: str, optional: bool) -> Any:
    """Value of a column of images; an empty one has none."""
    if name is None or (optional and name not in record):
        return None
    try:
        value = find_value(record, name)
    except KeyError:
        raise _missing(record, name, "images", place) from None
    if not optional and (value in (None, []) or (isinstance(value, str) and not value.strip())):
        raise ValueError(f"{place}: column {name!r} is empty; fill in the image or delete the row")
    return value or None


def _column(record: Record, name: str, role: str, place: str) -> Any:
    try:
        value = find_value(record, name)
    except KeyError:
        raise _missing(record, name, role, place) from None
    if value is None or value == [] or (isinstance(value, str) and not value.strip()):
        raise ValueError(
            f"{place}: column {name!r} is empty; fill in the {role} or delete the row (task.skip_bad=true)"
        )
    return value


def _missing(record: Record, name: str, role: str, place: str) -> ValueError:
    return ValueError(
        f"{place}: column {name!r} is missing, the row has {quote(sorted(record))}; add it, set task.{role} to the "
        f"column that holds the {role}, or name the row format (task.format)"
    )


def _messages(record: Record, place: str, layout: Layout) -> tuple[list[Message], str | None]:
    """Messages of the prompt, and the assistant's last one where it is the answer of a problem without a column."""
    name = layout.columns.prompt
    if layout.template is not None:

        def value_of(column: str) -> str:
            value = _column(record, column, "template", place)
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise ValueError(f"{place}: column {column!r} must be text or a number, got {quote(value)}")
            return str(value)

        return [{"role": "user", "content": fill_template(layout.template, value_of)}], None
    value = _column(record, name, "prompt", place)
    if isinstance(value, str):
        return [{"role": "user", "content": value}], None
    if not isinstance(value, list):
        raise ValueError(f"{place}: column {name!r} must be text or a list of messages, got {quote(value)}")
    messages = [read_message(message, name, place) for message in value]
    if messages[-1]["role"] != "assistant":
        return messages, None
    if layout.columns.answer is None and isinstance(messages[-1]["content"], str) and len(messages) > 1:
        if not messages[-1]["content"].strip():
            raise ValueError(
                f"{place}: the assistant's last message in column {name!r} is empty; fill in the answer or delete the "
                "row (task.skip_bad=true)"
            )
        return messages[:-1], messages[-1]["content"]
    raise ValueError(
        f"{place}: column {name!r} ends with the assistant's message; delete it, or set "
        "task.format=conversations where it is the answer"
    )


def _answer(record: Record, name: str, extract: str | None, place: str) -> str:
    value = _column(record, name, "answer", place)
    value = str(value) if isinstance(value, Decimal) else value
    real = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not (real or isinstance(value, str)):
        raise ValueError(f"{place}: column {name!r} must be text or a finite number, got {quote(value)}")
    text = _extract(str(value), extract, name, place)
    digits = text.strip()
    if not digits or (len(digits) <= 40 and "e" not in digits.lower()) or not _NUMBER.fullmatch(digits):
        return text
    if parse_number(digits) is not None:
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


def _extract(text: str, extract: str | None, name: str, place: str) -> str:
    """Return the answer that the extractor finds in a text of the column `name`; the text without an extractor."""
    if extract is None:
        return text
    found = build_extractor(json.loads(extract), "task.answer_extract")(text)
    if found is None:
        raise ValueError(
            f"{place}: column {name!r} holds no answer for task.answer_extract={extract}, it is {quote(text)}; "
            "correct the row or choose another extractor"
        )
    return found


def with_columns(columns: Columns, **given: str | None) -> Columns:
    """Columns of a format with those that were named; a named column must be in every row."""
    named = {name: value for name, value in given.items() if value is not None}
    return replace(columns, **named, optional=columns.optional.difference(named))  # type: ignore[arg-type]
