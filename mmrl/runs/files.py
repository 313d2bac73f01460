"""Replace a file as a whole: whoever opens its name finds the old content or the new, and never a part."""

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

    The file beside it is in the same folder, because a rename is atomic only within a file system. Its name is always
    the same, so what a killed process leaves behind is overwritten by the next one. File and folder are synced, so the
    new content is there after a power cut too.

    Args:
        path: the file to replace; its folder is made where it is missing.
        ending: of the name of the file beside it; one of its own for each process where several write the same file.
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
    """Write the folder's own entries to the disk."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    except OSError as error:  # some network file systems cannot sync a folder
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(number)
