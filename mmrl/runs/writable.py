"""Files that a command writes: what the system says about a folder that cannot be written, in one line."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmrl.errors import ConfigError


@contextmanager
def writable(place: str | Path, word: str) -> Iterator[None]:
    """Refuse, by name, a place that cannot be written: a full disk, missing rights, a path that cannot be.

    Args:
        place: file or folder that is written.
        word: of the command that names it, for the message.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:  # of a library, and about what is read
            raise
        shown = str(place) if len(str(place)) <= 200 else f"{str(place)[:200]}..."
        raise ConfigError(
            f"{word}: {shown} cannot be written ({error.strerror}); give a folder that can be, on a disk with room"
        ) from error


def check_writable(folder: str | Path, word: str) -> None:
    """Refuse a folder in which no file can be made, before the work is done that is to be written there."""
    with writable(folder, word):
        tempfile.TemporaryFile(dir=folder).close()
