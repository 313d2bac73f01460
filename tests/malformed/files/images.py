"""Malformed image files and paths of JSON Lines rows, and odd ones that are right."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tasks.dataset import DatasetTask
from tests.malformed.files.case import Case

PIXELS = np.random.default_rng(0).integers(0, 255, (24, 24, 3), dtype=np.uint8)


def encoded(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    """An image of 24 x 24 pixels in a file format."""
    stored = io.BytesIO()
    Image.fromarray(PIXELS).convert(mode).save(stored, kind, **options)
    return stored.getvalue()


def png(width: int, height: int, data: bytes = b"", bits: int = 1) -> bytes:
    """A grey PNG with this header and these compressed rows."""
    header = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(data)), (b"IEND", b""))
    chunks = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def image(content: bytes, name: str = "x.png", **settings: Any) -> Callable[[Path], DatasetTask]:
    """A task of four rows that all show this file."""

    def build(folder: Path) -> DatasetTask:
        (folder / name).write_bytes(content)
        return named(name, **settings)(folder)

    return build


def named(name: Any, **settings: Any) -> Callable[[Path], DatasetTask]:
    """A task of four rows that give this as the image's path."""

    def build(folder: Path) -> DatasetTask:
        rows = [{"question": f"{i}?", "answer": i, "image": name} for i in range(4)]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return DatasetTask(str(folder / "rows.jsonl"), images="image", **settings)

    return build


def _folder(folder: Path) -> DatasetTask:
    (folder / "x.png").mkdir()
    return named("x.png")(folder)


def _flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


def _depth(mode: str) -> bytes:
    stored = io.BytesIO()
    Image.new(mode, (4, 4)).save(stored, "TIFF")
    return stored.getvalue()


_ROW, _UNREADABLE = r"rows\.jsonl:1", r"x\.png cannot be read as an image .*replace the file"
_PNG = encoded("PNG")
IMAGES = [
    Case("an image of no bytes", image(b""), _ROW, _UNREADABLE),
    Case("a text as an image", image(b"not an image"), _ROW, _UNREADABLE),
    Case("an SVG", image(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), _ROW, _UNREADABLE),
    Case("a PNG's signature alone", image(_PNG[:8]), _ROW, _UNREADABLE),
    Case("a PNG cut in its header", image(_PNG[:20]), _ROW, _UNREADABLE),
    Case("a PNG cut in its pixels", image(_PNG[: len(_PNG) // 2]), _ROW, _UNREADABLE),
    Case("a PNG cut before its last pixels", image(_PNG[:-40]), _ROW, _UNREADABLE),
    Case("a PNG with a flipped byte in its header", image(_flipped(_PNG, 19)), _ROW, _UNREADABLE),
    Case("a PNG with a flipped byte in its pixels", image(_flipped(_PNG, len(_PNG) // 2)), _ROW, _UNREADABLE),
    Case("a PNG with a wrong checksum of its pixels", image(_flipped(_PNG, len(_PNG) - 14)), _ROW, _UNREADABLE),
    Case("a PNG of no width", image(png(0, 5)), _ROW, _UNREADABLE),
    Case("a PNG without pixels", image(png(16, 16)), _ROW, _UNREADABLE),
    Case("a JPEG cut in two", image(encoded("JPEG")[:400]), _ROW, _UNREADABLE),
    Case("a JPEG's header", image(encoded("JPEG")[:100]), _ROW, _UNREADABLE),
    Case("a GIF cut in two", image(encoded("GIF")[:900]), _ROW, _UNREADABLE),
    Case("a BMP cut in two", image(encoded("BMP")[:900]), _ROW, _UNREADABLE),
    Case("a WebP cut in two", image(encoded("WEBP", lossless=True)[:900]), _ROW, _UNREADABLE),
    Case("a TIFF cut in two", image(encoded("TIFF")[:900]), _ROW, _UNREADABLE),
    Case("12,000 x 12,000 bits", image(png(12_000, 12_000)), _ROW, "12000 x 12000 pixels.*task.max_pixels"),
    Case("60,000 x 60,000 pixels", image(png(60_000, 60_000)), _ROW, "more than .* pixels.*task.max_pixels"),
    Case("more than max_pixels", image(_PNG, max_pixels=500), _ROW, "24 x 24 pixels, more than task.max_pixels=500"),
    Case("integers of 32 bits", image(_depth("I")), _ROW, "more than 8 bits a channel"),
    Case("integers of 16 bits", image(_depth("I;16")), _ROW, "more than 8 bits a channel"),
    Case("real numbers", image(_depth("F")), _ROW, "more than 8 bits a channel"),
    Case("an image that is missing", named("none.png"), _ROW, "none.png, which does not exist"),
    Case("an image path that is empty", named(""), _ROW, "'image' is empty"),
    Case("an image path that is null", named(None), _ROW, "'image' is empty"),
    Case("an image path that is a number", named(7), _ROW, "must be the path of an image file, its bytes, or .*got 7"),
    Case("a list of image paths of which one is empty", named([""]), _ROW, "must be the path of an image file"),
    Case("an image path of 5,000 characters", named("a" * 5000), _ROW, r"aaa\.\.\. \(5002 characters\)"),
    Case("an image path with a zero byte", named("a\0b.png"), _ROW, "image"),
    Case("an image that is a folder", _folder, _ROW, "x.png, which does not exist"),
    Case("an image outside of the folder", named("../x.png"), _ROW, "outside of .*task.image_folder"),
    Case("an image anywhere", named("/etc/passwd"), _ROW, "outside of .*task.image_folder"),
    Case("an image outside, hidden", named("a/../../x.png"), _ROW, "outside of .*task.image_folder"),
    Case("a home folder", named("~/x.png"), _ROW, "which does not exist"),
]

ODD = {
    "CMYK": image(encoded("JPEG", "CMYK"), "x.jpg"),
    "GIF": image(encoded("GIF"), "x.gif"),
    "grey": image(encoded("PNG", "L"), "x.png"),
    "one bit": image(encoded("PNG", "1"), "x.png"),
    "palette": image(encoded("PNG", "P"), "x.png"),
    "grey with alpha": image(encoded("PNG", "LA"), "x.png"),
    "RGBA": image(encoded("PNG", "RGBA"), "x.png"),
    "one pixel": image(png(1, 1, b"\0\0"), "x.png"),
    "another ending": image(encoded("WEBP"), "x.data"),
    "a name of many alphabets": image(_PNG, "ünï ☃ 𝄞.png"),
    "a link": lambda folder: _linked(folder),
}


def _linked(folder: Path) -> DatasetTask:
    (folder / "store").mkdir()
    (folder / "store" / "blob").write_bytes(_PNG)
    (folder / "x.png").symlink_to(folder / "store" / "blob")
    return named("x.png")(folder)
