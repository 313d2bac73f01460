"""Load image files of a data set: inside its folder, decodable, and below a size limit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from mmrl.strict_json import quote

MAX_PIXELS = 2**25
"""Default limit of an image, 33.5 megapixels: 100 MB once it is decoded."""

PILLOW_PIXELS = 2 * 89_478_485
"""The most that Pillow opens."""

_DEEP = ("I", "F")  # modes of more than 8 bits a channel, which turning into RGB would cut off


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
        there = file.is_file()
    except (OSError, ValueError) as error:  # longer than a path may be, or a zero byte in it
        raise ValueError(f"{place} names {quote(name)}, which is no path of a file; write the image's path") from error
    if not there:
        shown = str(file) if str(file).isprintable() else quote(str(file))
        raise FileNotFoundError(
            f"{place} names {shown}, which does not exist; paths start at {folder} (task.image_folder)"
        )
    return file


def load_image(path: Path, place: str, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Load an image as uint8 [height, width, 3]; the first frame of an animation.

    Raises:
        ValueError: it cannot be decoded to its last pixel, has more than `max_pixels` pixels, or more than 8 bits a
            channel.
    """
    try:
        with Image.open(path) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise ValueError(
                    f"{place}: {path} has {width} x {height} pixels, more than task.max_pixels={max_pixels}; make the "
                    f"image smaller or raise task.max_pixels (at most {PILLOW_PIXELS})"
                )
            if image.mode.split(";")[0] in _DEEP:
                raise ValueError(
                    f"{place}: {path} has more than 8 bits a channel (mode {image.mode}), which would be cut off; "
                    "save it with 8 bits a channel"
                )
            return np.array(image.convert("RGB"))
    except Image.DecompressionBombError as error:
        raise ValueError(
            f"{place}: {path} states more than {PILLOW_PIXELS} pixels; make the image smaller (task.max_pixels)"
        ) from error
    except (UnidentifiedImageError, OSError, SyntaxError, EOFError, IndexError, OverflowError, MemoryError) as error:
        raise ValueError(f"{place}: {path} cannot be read as an image ({error}); replace the file") from error


def _verify(path: Path, place: str) -> None:
    """Raise for a file with wrong checksums, which Pillow does not check when it decodes a PNG."""
    try:
        with Image.open(path) as image:
            image.verify()
    except Image.DecompressionBombError:
        return  # `load_image` says how large it may be
    except (UnidentifiedImageError, OSError, SyntaxError, EOFError, ValueError) as error:
        raise ValueError(f"{place}: {path} cannot be read as an image ({error}); replace the file") from error


def image_sizes(places: Mapping[Path, str], max_pixels: int) -> dict[Path, tuple[int, int]]:
    """(height, width) of every image; each is decoded once, so that broken files are found before training.

    Args:
        places: where each image is named, for messages.
        max_pixels: limit of height x width.
    """

    def size(path: Path) -> tuple[int, int]:
        _verify(path, places[path])
        height, width, _ = load_image(path, places[path], max_pixels).shape
        return height, width

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # Pillow decodes without the interpreter's lock
        return dict(zip(places, pool.map(size, places)))
