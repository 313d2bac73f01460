"""Turn a row of a table into a problem: messages, images, the answer, and the other columns."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from mmrl.core.types import AssistantMessage
from mmrl.files.strict_json import MAX_DIGITS, BrokenJSON, parse_json, quote
from mmrl.rewards.answers.numbers import parse_number
from mmrl.rewards.extract import build_extractor
from tasks.chat import Message, describe_extras, join_text, read_message, read_tools
from tasks.dataset.columns import Columns, RowLayout, refuse_unshown
from tasks.dataset.media import Media, digest, read_images, read_videos
from tasks.dataset.messages import lift_media, parts_of, place_media, read_contents, refuse_marks, split_marks
from tasks.dataset.source import Record
from tasks.dataset.template import fill_template

_NUMBER = re.compile(r"[+-]?[0-9]*\.?[0-9]*(?:e[+-]?[0-9]+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Problem:
    """One problem and its place in the table."""

    place: str  # "file:line", for messages
    messages: tuple[Message, ...]
    answer: str | None
    media: tuple[Media, ...]  # in the order of their parts; frames of a video that are images have a part each
    info: dict[str, Any]
    tools: tuple[dict[str, Any], ...] = ()
    target: AssistantMessage | None = None  # the demonstrated message, where it has more than text

    def identity(self, exact: bool = False) -> bytes:
        """Hash that is equal for problems of equal words and equal images.

        Args:
            exact: white space counts, but not at the ends of lines and of the text; indentation is a word of programs.
        """
        read = _lines if exact else _words
        words = [w for message in self.messages for w in (message["role"], *map(read, parts_of(message)))]
        extras = describe_extras(self.messages, self.tools)
        return digest([*(word.encode() for word in (*words, *extras)), *(media.identity() for media in self.media)])


def _words(part: Message) -> str:
    return " ".join(part.get("text", "").split())


def _lines(part: Message) -> str:
    return "\n".join(line.rstrip() for line in part.get("text", "").splitlines()).strip("\n")


def read_problem(record: Record, place: str, layout: RowLayout) -> Problem:
    """Read a row; raises ValueError with the place, the column and the remedy."""
    columns = layout.columns
    refuse_unshown(record, place, layout)
    messages, target = _messages(record, place, layout)
    if columns.answer is not None:
        answer = _answer(record, columns.answer, layout.answer_extract, place)
    elif target is None or "tool_calls" in target.fields:
        answer = None  # no text says whether a call is right
    else:
        answer = _extract(str(target), layout.answer_extract, columns.prompt, place)
    tools = _tools(record, place, layout)
    messages, media = _place_media(record, messages, place, layout)
    has_text = [any(map(_words, parts_of(message))) for message in messages if message["role"] == "user"]
    if has_text and not media and not any(has_text):
        raise ValueError(
            f"{place}: the user's messages in column {columns.prompt!r} are empty; fill in the prompt or delete the "
            "row (task.skip_bad=true)"
        )
    if layout.system is not None and all(message["role"] != "system" for message in messages):
        messages = [{"role": "system", "content": layout.system}, *messages]
    plain = target is None or target.fields.keys() == {"role", "content"}
    return Problem(
        place,
        tuple(messages),
        answer,
        tuple(media),
        _further_columns(record, columns),
        tools,
        None if plain else target,
    )


def _place_media(
    record: Record, messages: list[Message], place: str, layout: RowLayout
) -> tuple[list[Message], list[Media]]:
    """Read the images and videos of a row, and give each its place in the messages."""
    columns, media = layout.columns, []

    def read(kind: str, cell: Any, where: str) -> list[Media]:
        if cell is None:
            return []
        if kind == "image":
            return read_images(cell, f"{place}: {where}", layout.folder)
        return read_videos(cell, f"{place}: {where}", layout.folder, **layout.videos.options(record, place))

    for kind, names in (("image", columns.images), ("video", columns.videos)):
        for name in names:
            cell = _cell(record, name, place, f"{kind}s" in columns.optional)
            media += read(kind, cell, f"column {name!r}")
    has_media = media or any(part["type"] != "text" for message in messages for part in parts_of(message))
    if has_media:
        refuse_marks(messages, place)
    if has_media or columns.marks:
        messages = [split_marks(message) for message in messages]
    if media or any(not isinstance(message["content"], str) for message in messages):
        readers = {kind: partial(read, kind, where=f"the {kind} of a message") for kind in ("image", "video")}
        messages, media = lift_media(messages, media, readers)
        messages, media = place_media(messages, media, place)
    return messages, media


def _further_columns(record: Record, columns: Columns) -> dict[str, Any]:
    """The columns that are neither prompt nor media, for verifiers and rewards."""
    used = {columns.prompt, *columns.images, *columns.videos, columns.tools}
    used |= {"answer"} if columns.answer == "answer" else set()
    return {name: value for name, value in record.items() if name not in used and not isinstance(value, bytes)}


def _tools(record: Record, place: str, layout: RowLayout) -> tuple[dict[str, Any], ...]:
    name = layout.columns.tools
    if name is None or ("tools" in layout.columns.optional and name not in record):
        return ()
    return read_tools(_column_or_none(record, name, "tools", place), name, place, layout.filled)


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


def _column_or_none(record: Record, name: str, role: str, place: str) -> Any:
    try:
        return find_value(record, name)
    except KeyError:
        raise _missing(record, name, role, place) from None


def _cell(record: Record, name: str, place: str, optional: bool) -> Any:
    """Value of a column of images; an empty one has none."""
    if optional and name not in record:
        return None
    value = _column_or_none(record, name, "images", place)
    if not optional and (value in (None, []) or (isinstance(value, str) and not value.strip())):
        raise ValueError(f"{place}: column {name!r} is empty; fill in the image or delete the row")
    return value or None


def _column(record: Record, name: str, role: str, place: str) -> Any:
    value = _column_or_none(record, name, role, place)
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


def _messages(record: Record, place: str, layout: RowLayout) -> tuple[list[Message], AssistantMessage | None]:
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
    value = _parse_messages(value, f"{place}: column {name!r}") if isinstance(value, str) else value
    if isinstance(value, str) and layout.columns.texts:
        return [{"role": "user", "content": value}], None
    if not isinstance(value, list):
        form = "text or a list of messages" if layout.columns.texts else "a list of messages"
        raise ValueError(f"{place}: column {name!r} must be {form}, got {quote(value)}")
    messages = [read_message(message, name, place, layout.filled, layout.ignored) for message in value]
    messages = [read_contents(message, name, place, layout.ignored) for message in messages]
    *before, last = messages
    if last["role"] != "assistant":
        return messages, None
    text = join_text(last["content"])
    if layout.columns.answer is None and text is not None and before:
        if not text.strip() and "tool_calls" not in last:
            raise ValueError(
                f"{place}: the assistant's last message in column {name!r} is empty; fill in the answer or delete the "
                "row (task.skip_bad=true)"
            )
        return before, AssistantMessage(text, {**last, "content": text})
    raise ValueError(
        f"{place}: column {name!r} ends with the assistant's message; delete it, or set "
        "task.format=conversations where it is the answer"
    )


def _parse_messages(text: str, where: str) -> Any:
    """Return the messages of a JSON text, as tables without lists hold them; another text as it is."""
    if not re.match(r"\s*\[\s*\{", text) or '"role"' not in text:
        return text
    try:
        value = parse_json(text, where, "write a list of messages")
    except BrokenJSON:
        return text
    return value if all(isinstance(message, dict) and "role" in message for message in value) else text


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
    answer = build_extractor(json.loads(extract), "task.answer_extract")(text)
    if answer is None:
        raise ValueError(
            f"{place}: column {name!r} holds no answer for task.answer_extract={extract}, it is {quote(text)}; "
            "correct the row or choose another extractor"
        )
    return answer
