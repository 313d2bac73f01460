"""Replace a file atomically: a reader gets the old or the new content, never a part."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a file system that has no room left, or no more for this user or this file."""


@contextmanager
def replace_file(path: str | Path, ending: str = "part") -> Iterator[IO[bytes]]:
    """Write a file beside `path`, sync it and rename it to `path`; an exception inside leaves `path` as it was.

    The temporary file is in the same folder, because a rename is atomic only within a file system. Its name is fixed,
    so the next process overwrites what a killed process left. File and folder are synced, so the new content survives a
    power cut.

    Args:
        path: the file to replace; a missing folder is created.
        ending: suffix of the temporary file; different for each process where several write the same file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{ending}")
    try:
        with beside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder to the disk."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    except OSError as error:  # some network file systems cannot sync a folder
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(number)
