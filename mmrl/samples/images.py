"""Encode images for rows and HTML files: thumbnails and data URIs."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

SIDE = 128  # pixels of a thumbnail's longer side
LOSSLESS = 64 * 64  # pixels up to which PNG is smaller than JPEG


def data_uri(content: bytes, media: str) -> str:
    """Encode content as a data URI."""
    return f"data:{media};base64,{base64.b64encode(content).decode()}"


def encode_thumbnail(image: np.ndarray, side: int = SIDE) -> str:
    """Encode an image [H, W, C] uint8 as a data URI of at most `side` pixels: PNG where it is small, else JPEG."""
    small = Image.fromarray(np.ascontiguousarray(image[..., :3].squeeze()))
    small.thumbnail((side, side))
    file, kind = io.BytesIO(), "png" if small.width * small.height <= LOSSLESS else "jpeg"
    small.convert("RGB").save(file, kind, quality=80)
    return data_uri(file.getvalue(), f"image/{kind}")
