"""Load image files of a data set: inside its folder, decodable, and below a size limit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageOps

from mmrl.files.strict_json import quote
from mmrl.media.images import open_image

MAX_PIXELS = 2**25
"""Default limit of an image, 33.5 megapixels: 100 MB once it is decoded."""

PILLOW_PIXELS = 2 * 89_478_485
"""The most that Pillow opens."""

_DEEP = ("I", "F")  # modes of more than 8 bits a channel, which turning into RGB would cut off

_TURNED = (5, 6, 7, 8)  # EXIF orientations that exchange width and height


def image_path(folder: Path, name: str, place: str) -> Path:
    """Path of the image file that a row names; raises if it is missing or outside the folder.

    Symbolic links inside the folder are followed.

    Args:
        folder: where relative paths start, and which no path may leave.
        name: as the row has it.
        place: file, line and column, for messages.
    """
    file = Path(os.path.normpath(folder / Path(name)))
    if not file.is_relative_to(folder):
        raise ValueError(
            f"{place} names {quote(name)}, which lies outside of {folder}; set task.image_folder to a folder that "
            "holds all images"
        )
    try:
        exists = file.is_file()
    except (OSError, ValueError) as error:  # longer than a path may be, or a zero byte in it
        raise ValueError(f"{place} names {quote(name)}, which is no path of a file; write the image's path") from error
    if not exists:
        text = str(file) if str(file).isprintable() else quote(str(file))
        raise FileNotFoundError(
            f"{place} names {text}, which does not exist; paths start at {folder} (task.image_folder)"
        )
    return file


def load_image(image: Path | bytes, place: str, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Load an image file, or the bytes of one, as uint8 [height, width, 3]; the first frame of an animation.

    The orientation that EXIF states is applied, and transparent pixels are drawn on white.

    Raises:
        ValueError: it cannot be decoded to its last pixel, has more than `max_pixels` pixels, or more than 8 bits a
            channel.
    """
    with _open(image, place) as opened:
        size, mode = opened.size, opened.mode
    check_size(*size, place, _name(image), max_pixels)
    if mode.split(";")[0] in _DEEP:
        raise ValueError(
            f"{place}: {_name(image)} has more than 8 bits a channel (mode {mode}), which would be cut off; save it "
            "with 8 bits a channel"
        )
    with _open(image, place) as opened:
        turned = ImageOps.exif_transpose(opened)
        if turned.has_transparency_data:  # the colours behind transparent pixels are often black, as the ink is
            turned = Image.alpha_composite(Image.new("RGBA", turned.size, "white"), turned.convert("RGBA"))
        return np.array(turned.convert("RGB"))


def verify_image(image: Path | bytes, place: str) -> None:
    """Raise for wrong checksums, which Pillow does not check when it decodes a PNG."""
    with _open(image, place) as opened:
        opened.verify()


def image_size(image: Path | bytes, place: str) -> tuple[int, int]:
    """Height and width that the header states, in the orientation that EXIF states."""
    with _open(image, place) as opened:
        # Pillow decodes a PNG to look for EXIF at its end, and states the size of a TIFF in its orientation
        exif = opened.getexif() if opened.format != "TIFF" and "exif" in opened.info else {}
        turned = exif.get(ExifTags.Base.Orientation) in _TURNED
        return (opened.width, opened.height) if turned else (opened.height, opened.width)


def is_animation(image: Path | bytes, place: str) -> bool:
    """Return whether the file shows several frames one after the other; pages of a document are none."""
    with _open(image, place) as opened:
        return opened.format not in ("MPO", "TIFF") and getattr(opened, "is_animated", False)


def check_size(width: int, height: int, place: str, name: str, max_pixels: int) -> None:
    """Raise for an image with more than `max_pixels` pixels."""
    if width * height > max_pixels:
        raise ValueError(
            f"{place}: {name} has {width} x {height} pixels, more than task.max_pixels={max_pixels}; make the "
            f"image smaller or raise task.max_pixels (at most {PILLOW_PIXELS})"
        )


@contextmanager
def _open(image: Path | bytes, place: str) -> Iterator[Image.Image]:
    """Open an image; errors of Pillow, also of what is done with it, name the place."""
    try:
        with open_image(image) as opened:
            yield opened
    except ValueError as error:
        name = _name(image)
        if isinstance(error.__cause__, Image.DecompressionBombError):
            raise ValueError(
                f"{place}: {name} states more than {PILLOW_PIXELS} pixels; make the image smaller (task.max_pixels)"
            ) from error
        raise ValueError(f"{place}: {name} cannot be read as an image ({error}); replace the file") from error


def _name(image: Path | bytes) -> str:
    return str(image) if isinstance(image, Path) else f"the image of {len(image)} bytes"
