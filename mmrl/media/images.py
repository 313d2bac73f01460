"""Open images that other people wrote: formats by an allow list, and every error of a decoder as one."""

from __future__ import annotations

import base64
import binascii
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from mmrl.files.foreign import check_regular

IMAGE_FORMATS = (
    *("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "DIB", "PPM", "JPEG2000", "AVIF", "ICO", "TGA", "PCX", "QOI"),
)
"""Formats of Pillow that are decoded; EPS, for example, starts Ghostscript, and PDF and WMF start other programs."""

MOST_BYTES = 8 * 2**20
"""Bytes of an encoded image that a program sends."""
MOST_PIXELS = 2048 * 2048
MOST_RATIO = 100
"""Of the sides of an image that a program sends; processors scale the shorter side to nothing."""


def decode_image(body: str) -> np.ndarray:
    """Decode an image that a program sends as base64, within limits, to uint8 [H, W, 3].

    Raises:
        ValueError: with the reason and what to do.
    """
    if len(body) > MOST_BYTES * 4 / 3 + 4:
        raise ValueError(f"an image has more than {MOST_BYTES // 2**20} MiB; make it smaller")
    try:
        encoded = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"an image is no base64 ({error}); encode it again") from error
    try:
        with open_image(encoded) as opened:
            reason = _refuse_size(*opened.size)
            pixels = np.array([] if reason else opened.convert("RGB"))
    except ValueError as error:
        raise ValueError(f"an image cannot be decoded: {error}; send a PNG or JPEG") from error
    if reason:
        raise ValueError(reason)
    return pixels


def _refuse_size(width: int, height: int) -> str:
    """Why an image of this size is not decoded; empty where it is."""
    if width * height > MOST_PIXELS:
        return f"an image of {width} x {height} pixels has more than {MOST_PIXELS} pixels; scale it down"
    if max(width, height) > MOST_RATIO * min(width, height):
        return f"an image of {width} x {height} pixels has a side {MOST_RATIO} times as long as the other; cut it"
    return ""


@contextmanager
def open_image(image: Path | bytes) -> Iterator[Image.Image]:
    """Open an image of a known format, without decoding it.

    Raises:
        ValueError: for whatever is raised here or inside of the block; the message is the reason alone.
    """
    if isinstance(image, Path):
        check_regular(image, "replace the file")
    try:
        with Image.open(image if isinstance(image, Path) else io.BytesIO(image), formats=IMAGE_FORMATS) as opened:
            yield opened
    except Exception as error:  # decoders raise many types
        reason = re.sub(r"<_io\.BytesIO object at \w+>", "the bytes", " ".join(str(error).split())[:200])
        raise ValueError(reason or type(error).__name__) from error
