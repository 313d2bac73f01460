"""Replace a file atomically: a reader gets the old or the new content, never a part."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mmrl.core.errors import ConfigError
from mmrl.files.exchange import exchange_paths

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a file system that has no room left, or no more for this user or this file."""


@contextmanager
def replace_file(path: str | Path, ending: str = "part", sync: bool = True) -> Iterator[IO[bytes]]:
    """Write a file beside `path`, sync it and rename it to `path`; an exception inside leaves `path` as it was.

    The temporary file is in the same folder, because a rename is atomic only within a file system. Its name is fixed,
    so the next process replaces what a killed process left. It is a new file, and a link at `path` is replaced: what a
    link of that name points to is never written. File and folder are synced, so the new content survives a power cut.

    Args:
        path: the file to replace; a missing folder is created.
        ending: suffix of the temporary file; different for each process where several write the same file.
        sync: whether file and folder are synced.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{ending}")
    beside.unlink(missing_ok=True)
    try:
        with open(beside, "xb") as file:  # a new file: no link is followed
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def write_file(path: str | Path, content: str | bytes) -> Path:
    """Write a small file in place of what has its name, a link included; returns the path.

    Args:
        path: of the file; a missing folder is created.
        content: a text is written in UTF-8.
    """
    with replace_file(path, sync=False) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return Path(path)


@contextmanager
def replace_path(path: str | Path) -> Iterator[Path]:
    """Give a new name with the same suffix to a library that writes files by name, and rename the file to `path`."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        yield Path(folder) / path.name
        os.replace(Path(folder) / path.name, path)


def open_unlinked(path: str | Path, flags: int) -> int:
    """Open a file that is changed in place, and return its descriptor; it is created if missing.

    Args:
        path: of the file.
        flags: of `os.open`, O_CREAT and O_NOFOLLOW aside.

    Raises:
        ConfigError: a link, also a hard one, a pipe or a device has its name: what lies elsewhere would be changed.
    """
    try:  # without blocking, because a pipe without a reader would hold the run up
        number = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise ConfigError(f"{path} is a link or a pipe, and a run writes files of its own; remove it") from error
    status = os.fstat(number)
    if not stat.S_ISREG(status.st_mode):
        os.close(number)
        raise ConfigError(f"{path} is no regular file, and a run writes files of its own; remove it")
    if status.st_nlink > 1:
        os.close(number)
        raise ConfigError(
            f"{path} is a hard link: {status.st_nlink - 1} further names share its content, which a run would change; "
            "put a copy in its place"
        )
    return number


def append_to(path: str | Path) -> IO[bytes]:
    """Open a file to append to it, without a buffer, after `open_unlinked`."""
    return os.fdopen(open_unlinked(path, os.O_WRONLY | os.O_APPEND), "ab", buffering=0)


def check_inside(folder: str | Path, root: str | Path) -> None:
    """Refuse a folder of a run that is a link to another place, where files would be written.

    Args:
        folder: that is written into.
        root: folder of the run.
    """
    if not Path(folder).resolve().is_relative_to(Path(root).resolve()):
        raise ConfigError(
            f"{folder} is a link to {Path(folder).resolve()}, outside of the run; remove the link, or copy the folder"
        )


@contextmanager
def replace_folder(path: str | Path) -> Iterator[Path]:
    """Write a folder beside `path` and give it that name; an exception inside leaves `path` as it was.

    A reader finds the old folder or the new one, whenever this process is killed: the two exchange their names in one
    step. Where the file system cannot exchange names, a kill between two renames leaves the old folder beside `path`,
    and the next writer or `restore_folder` gives it its name back. Other files that a killed process left are removed
    by the next call. A link at `path` is replaced, and what it points to stays.

    Args:
        path: the folder to replace; folders above it are created.
    """
    path = Path(path)
    restore_folder(path)
    beside, before = path.with_name(f".{path.name}.part"), _name_before(path)
    for leftover in (beside, before):
        remove_path(leftover)
    beside.mkdir(parents=True)
    try:
        yield beside
        _give_name(beside, path, before)
    except BaseException:
        remove_path(beside)
        raise
    remove_path(beside)  # after an exchange it is the old folder
    remove_path(before)


def restore_folder(path: str | Path) -> Path:
    """Give a folder its name back that a process killed in `replace_folder` has left beside it; returns the path."""
    path = Path(path)
    if path.name and not os.path.lexists(path):
        with suppress(OSError):  # there is none, or its writer is alive and goes on
            os.rename(_name_before(path), path)
    return path


def _name_before(path: Path) -> Path:
    return path.with_name(f".{path.name}.before")


def _give_name(folder: Path, path: Path, before: Path) -> None:
    """Rename a folder to `path`; what has that name is then at the folder's old name, or at `before`."""
    while os.path.lexists(path):
        if exchange_paths(folder, path):
            return
        os.rename(path, before)
        try:
            os.rename(folder, path)
        except OSError as error:
            restore_folder(path)
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # a reader has restored the old folder
                raise
        else:
            return
    os.rename(folder, path)


def remove_path(path: Path) -> None:
    """Remove a file, a link or a folder with all that it holds; a missing one is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
