"""Open files that other people wrote: regular files alone, of a bounded size."""

from __future__ import annotations

import os
import stat
from itertools import islice
from pathlib import Path
from typing import BinaryIO

SMALL = 2**28
"""Bytes that a file may state without holding them: arrays of zeros are compressed to almost nothing."""

MAX_RATIO = 1100
"""Stated bytes for each stored one, above `SMALL`; deflate, which compresses most, reaches 1032."""

_PIECE = 2**20  # bytes read at once


def check_regular(path: str | Path, remedy: str, limit: int | None = None) -> int:
    """Refuse a pipe, a device, a socket or a folder in a file's place, and a file that is too large; return its size.

    Opening a pipe waits for its writer, and reading a device may never end.

    Args:
        path: of the file; links are followed.
        remedy: end of the message.
        limit: maximum number of bytes; None for any.

    Raises:
        ValueError: with the path, what stands there and the remedy.
    """
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}); {remedy}") from error
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path} cannot be read (it is {_kind(status.st_mode)}, not a file); {remedy}")
    if limit is not None and status.st_size > limit:
        raise ValueError(f"{path}: {status.st_size:,} bytes, more than the {limit:,} of any such file; {remedy}")
    return status.st_size


def open_foreign(path: str | Path, remedy: str, limit: int | None = None) -> BinaryIO:
    """Open a file to read bytes, after `check_regular`; one that becomes a pipe in between is refused too."""
    check_regular(path, remedy, limit)
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise ValueError(f"{path} cannot be read (it is not a file); {remedy}")
    return os.fdopen(number, "rb")


def read_foreign(path: str | Path, remedy: str, limit: int) -> bytes:
    """Read a whole file of at most `limit` bytes."""
    with open_foreign(path, remedy, limit) as file:  # in pieces: one read of `limit` bytes takes as much memory at once
        pieces = iter(lambda: file.read(_PIECE), b"")
        content = b"".join(islice(pieces, limit // _PIECE + 1))
    if len(content) > limit:  # it grew
        raise ValueError(f"{path}: more than the {limit:,} bytes of any such file; {remedy}")
    return content


def check_stated(stated: int, stored: int, place: str, remedy: str) -> None:
    """Refuse a compressed part that states far more bytes than what is stored can be.

    Args:
        stated: bytes once it is decompressed.
        stored: bytes in the file.
        place: file and part, for the message.
        remedy: end of the message.
    """
    if stated > max(SMALL, MAX_RATIO * stored):
        raise ValueError(f"{place}: states {stated:,} bytes and holds {stored:,}; {remedy}")


def check_files(folder: str | Path, remedy: str) -> None:
    """Refuse a folder in which a pipe, a device or a socket stands in a file's place; subfolders are looked at too."""
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if os.path.exists(path):
                check_regular(path, remedy)


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return kinds.get(stat.S_IFMT(mode), "a socket")
