"""Chat messages of a row, and the places of images and videos in them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import Any

from mmrl.files.strict_json import quote
from tasks.chat import Message
from tasks.dataset.media import Media

_MARK = re.compile(r"<image>|<video>")
_OTHER_MARK = re.compile(
    r"<(?:image|img|video)[ _-]?\d+>|<\|(?:image|video)(?:_pad|_\d+)?\|>|\[IMG\]|<IMG_CONTEXT>|<img>", re.I
)
"""Marks of models and data sets that are not turned into images here."""


def read_contents(message: Message, name: str, place: str, ignored: Collection[str] = ()) -> Message:
    """Check the content parts of a message of the column `name`; entries that are `ignored` are left out."""
    if isinstance(message["content"], str):
        return message
    return {**message, "content": [_part(part, name, place, ignored) for part in message["content"]]}


def _part(value: Any, name: str, place: str, ignored: Collection[str]) -> Message:
    entries = value.items() if isinstance(value, Mapping) else ()
    part = {key: entry for key, entry in entries if key not in ignored and entry is not None}
    content = part.get("type")
    if content in ("text", "video") and (
        further := sorted(key for key in part if key not in ("type", content) and part[key])
    ):
        raise ValueError(
            f"{place}: column {name!r} has a content part with {further[0]!r}, which would not be read; delete it, or "
            f"leave it out by task.ignored=[{further[0]}]"
        )
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if part.get("type") in ("image", "video"):
        return part
    url = part.get("image_url")
    if part.get("type") == "image_url" and (address := url.get("url") if isinstance(url, Mapping) else url):
        return {"type": "image", "image": _read_address(address, name, place)}
    raise ValueError(
        f"{place}: column {name!r} has the content part {quote(value)}; write {{type: text, text: ...}}, "
        "{type: image} or {type: video}"
    )


def _read_address(address: Any, name: str, place: str) -> Any:
    """Bytes of a data URL, or the path that OpenAI's form of an image part names."""
    if not isinstance(address, str) or not address.startswith(("data:", "http:", "https:")):
        return address
    header, comma, body = address.partition(",")
    try:
        if header.startswith("data:") and header.endswith(";base64") and comma:
            return base64.b64decode(body, validate=True)
    except ValueError:
        pass
    raise ValueError(
        f"{place}: column {name!r} has the image {quote(address)}, which is not loaded; write its path, or "
        "data:image/...;base64,..."
    )


def split_marks(message: Message) -> Message:
    """Split texts at <image> and <video> into content parts."""
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not any(_MARK.search(part.get("text", "")) for part in parts):
        return message
    return {**message, "content": [piece for part in parts for piece in _split(part)]}


def _split(part: Message) -> list[Message]:
    if part["type"] != "text" or not _MARK.search(part["text"]):
        return [part]
    pieces = [piece for piece in re.split(f"({_MARK.pattern})", part["text"]) if piece]
    return [{"type": p[1:-1]} if _MARK.fullmatch(p) else {"type": "text", "text": p} for p in pieces]


def refuse_marks(messages: list[Message], place: str) -> None:
    """Refuse marks of another form beside images: they would stay stray words, or be read as another image."""
    for part in (part for message in messages for part in parts_of(message)):
        if other := _OTHER_MARK.search(part.get("text", "")):
            raise ValueError(
                f"{place}: the text has the mark {other[0]!r} beside images, which the policy would read as a word; "
                "write <image> where an image stands, in the order of the images"
            )


def lift_media(
    messages: list[Message], media: list[Media], read: Mapping[str, Callable[[Any], list[Media]]]
) -> tuple[list[Message], list[Media]]:
    """Take images and videos out of the messages.

    Args:
        messages: with content parts.
        media: of the columns of the row.
        read: by kind, "image" or "video": reads what a part brings.

    Returns:
        Messages with bare parts, and all images, then all videos, in the order of their parts.
    """
    lifted: dict[str, list[Media]] = {kind: [] for kind in read}
    of_row = {kind: iter([m for m in media if m.kind == kind]) for kind in read}

    def lift(part: Message) -> Message:
        kind = part["type"]
        if kind not in read:
            return part
        lifted[kind].extend(read[kind](part[kind]) if kind in part else islice(of_row[kind], 1))
        return {"type": kind}

    messages = [replace_content(message, map(lift, parts_of(message))) for message in messages]
    return messages, [each for kind in read for each in (*lifted[kind], *of_row[kind])]


def place_media(messages: list[Message], media: list[Media], place: str) -> tuple[list[Message], list[Media]]:
    """Give every image and video its parts of a message: where they stand, else before the first text of the user."""
    marked = [part["type"] for message in messages for part in parts_of(message) if part["type"] != "text"]
    videos, images = [m for m in media if m.frames], [m for m in media if not m.frames]
    for name, count, row_media in (("image", marked.count("image"), images), ("video", marked.count("video"), videos)):
        if count and count != len(row_media):
            raise ValueError(
                f"{place}: the messages have {count} {name} part(s) but the row brings {len(row_media)}; write one "
                f"<{name}> or {{type: {name}}} for each"
            )
    front = [m for m in [*videos, *images] if m.kind not in marked]
    rest = {"image": iter(images), "video": iter(videos)}
    users = [position for position, message in enumerate(messages) if message["role"] == "user"]
    if front and not users:
        raise ValueError(f"{place}: the row brings images, but no message is the user's; add a message")
    placed, ordered = [], []
    for position, message in enumerate(messages):
        items: list[Message | Media] = [*front] if users[:1] == [position] else []
        items += [part if part["type"] == "text" else next(rest[part["type"]]) for part in parts_of(message)]
        parts: list[Message] = []
        for item in items:
            parts += item.parts if isinstance(item, Media) else [item]
        ordered += [item for item in items if isinstance(item, Media)]
        placed.append(replace_content(message, parts))
    return placed, ordered


def parts_of(message: Message) -> Iterator[Message]:
    """Content parts of a message; a text is one part."""
    content = message["content"]
    return iter([{"type": "text", "text": content}] if isinstance(content, str) else content)


def replace_content(message: Message, parts: Any) -> Message:
    """Message with other parts; a single text that was no list stays a text."""
    parts = list(parts)
    if isinstance(message["content"], str) and len(parts) == 1 and parts[0]["type"] == "text":
        return message
    return {**message, "content": parts}
