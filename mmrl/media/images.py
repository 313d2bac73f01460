"""Open images that other people wrote: formats by an allow list, and every error of a decoder as one."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from mmrl.files.foreign import check_regular

IMAGE_FORMATS = (
    *("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "DIB", "PPM", "JPEG2000", "AVIF", "ICO", "TGA", "PCX", "QOI"),
)
"""Formats of Pillow that are decoded; EPS, for example, starts Ghostscript, and PDF and WMF start other programs."""


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
