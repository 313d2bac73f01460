"""Chat messages of a row, and the places of images and videos in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from mmrl.strict_json import kind, quote
from tasks.dataset.media import Media, read_images

Message = dict[str, Any]
ROLES = ("system", "user", "assistant", "tool")


def read_message(value: Any, name: str, place: str) -> Message:
    """Read a chat message of the column `name`; raises ValueError for another form."""
    if not isinstance(value, Mapping) or value.get("role") not in ROLES:
        raise ValueError(
            f"{place}: column {name!r} holds {quote(value)}, which is no chat message: it needs 'role', one of "
            f"{', '.join(ROLES)}, and 'content'; convert other formats"
        )
    if value.get("tool_calls"):
        raise ValueError(
            f"{place}: column {name!r} has a message with 'tool_calls', which would be left out; write the calls into "
            "its 'content', as the policy shall read them"
        )
    content = value.get("content")
    if isinstance(content, list):
        content = [_part(part, name, place) for part in content]
    elif not isinstance(content, str):
        raise ValueError(f"{place}: column {name!r} has a message whose content is {kind(content)}; write a text")
    return {"role": value["role"], "content": content}


def _part(value: Any, name: str, place: str) -> Message:
    part = {key: entry for key, entry in value.items() if entry is not None} if isinstance(value, Mapping) else {}
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if part.get("type") in ("image", "video"):
        return part
    raise ValueError(
        f"{place}: column {name!r} has the content part {quote(value)}; write {{type: text, text: ...}}, "
        "{type: image} or {type: video}"
    )


def split_marks(message: Message) -> Message:
    """Split a text at <image> and <video> into content parts."""
    content = message["content"]
    if not isinstance(content, str) or not re.search("<image>|<video>", content):
        return message
    pieces = [piece for piece in re.split("(<image>|<video>)", content) if piece]
    parts = [{"type": p[1:-1]} if p in ("<image>", "<video>") else {"type": "text", "text": p} for p in pieces]
    return {**message, "content": parts}


def lift_images(
    messages: list[Message], media: list[Media], place: str, folder: Path
) -> tuple[list[Message], list[Media]]:
    """Take images out of the messages; returns them and those of the row, `media`, in the order of the parts."""
    found: list[Media] = []
    of_row = iter([m for m in media if not m.frames])

    def lift(part: Message) -> Message:
        if part["type"] != "image":
            return part
        if "image" in part:
            found.extend(read_images(part["image"], f"{place}: the image of a message", folder))
        else:
            found.extend(islice(of_row, 1))
        return {"type": "image"}

    lifted = [replace_content(message, map(lift, parts_of(message))) for message in messages]
    return lifted, [*found, *of_row, *(m for m in media if m.frames)]


def place_media(messages: list[Message], media: list[Media], place: str) -> tuple[list[Message], list[Media]]:
    """Give every image a part of a message: where the parts stand, else before the text of the first user message."""
    marked = [part["type"] for message in messages for part in parts_of(message) if part["type"] != "text"]
    videos, images = [m for m in media if m.frames], [m for m in media if not m.frames]
    for name, written, given in (("image", marked.count("image"), images), ("video", marked.count("video"), videos)):
        if written and written != len(given):
            raise ValueError(
                f"{place}: the messages have {written} {name} part(s) but the row brings {len(given)}; add"
            )
    front = [m for m in [*videos, *images] if ("video" if m.frames else "image") not in marked]
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
            parts += [{"type": "image"}] * item.count if isinstance(item, Media) else [item]
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
