"""Images in requests: data URLs, bounded in bytes and pixels, as the arrays that policies encode."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from mmrl.engines.endpoint.errors import RequestError
from mmrl.media.images import decode_image

MOST_IMAGES = 32
"""Images of a conversation."""


@dataclass(frozen=True)
class RequestImage:
    """A decoded image of a request; images of equal pixels are equal, and its text is its digest.

    Args:
        digest: of sides and pixels.
        pixels: uint8 [H, W, 3].
    """

    digest: str
    pixels: np.ndarray = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.digest


def read_image(part: Mapping[str, Any], place: str) -> RequestImage:
    """Decode a content part {type: image_url, image_url: {url: "data:image/png;base64,..."}}. Nothing is fetched.

    Raises:
        RequestError: with the place of the message.
    """
    value = part.get("image_url")
    fields = value if isinstance(value, Mapping) else {"url": value}
    url, further = fields.get("url"), sorted({*part} - {"type", "image_url"} | {*fields} - {"url", "detail"})
    if not isinstance(url, str) or further:
        raise _refuse(place, f"a part 'image_url' is {{type, image_url: {{url}}}}, got {further or type(url).__name__}")
    if fields.get("detail", "auto") not in ("auto", None):
        raise _refuse(place, f"detail={fields['detail']!r:.50} is not supported; images are read in their own size")
    head, comma, body = url.partition(",")
    kind, *options = head.lower().split(";")
    if not comma or not kind.startswith("data:image/") or options[-1:] != ["base64"]:
        raise _refuse(place, f"{url!r:.60} is not fetched; send the image itself, data:image/png;base64,...")
    try:
        pixels = decode_image(body)
    except ValueError as error:
        raise _refuse(place, str(error)) from error
    digest = hashlib.sha256(repr(pixels.shape).encode() + pixels.tobytes()).hexdigest()
    return RequestImage(digest, pixels)


def _refuse(place: str, reason: str) -> RequestError:
    return RequestError(f"{place}.content: {reason}", place, "invalid_image")


def write_data_url(pixels: np.ndarray) -> str:
    """Return an image [H, W, 3] as the data URL of a PNG, from which `read_image` reads equal pixels."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def write_image_parts(messages: Sequence[Mapping[str, Any]], images: Sequence[np.ndarray]) -> list[dict[str, Any]]:
    """Return the messages of a prompt as a request has them: its image parts are the data URLs of its images."""
    urls = map(write_data_url, images)

    def write_part(part: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"type": "image_url", "image_url": {"url": next(urls)}} if part.get("type") == "image" else part

    return [
        dict(message)
        if isinstance(message["content"], str)
        else {**message, "content": list(map(write_part, message["content"]))}
        for message in messages
    ]


def separate_images(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], tuple[np.ndarray, ...]]:
    """Return messages with image parts as chat templates read them, {type: image}, and the pixels in order."""
    images: list[np.ndarray] = []
    out = []
    for message in messages:
        if not isinstance(message["content"], str):
            parts = message["content"]
            images += [part["image"].pixels for part in parts if part["type"] == "image"]
            content = [{"type": "image"} if part["type"] == "image" else part for part in parts]
            message = {**message, "content": content}
        out.append(message)
    return out, tuple(images)
