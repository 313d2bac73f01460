"""Report a folder that cannot be written as a one-line error."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmrl.core.errors import ConfigError


@contextmanager
def writable(place: str | Path, word: str) -> Iterator[None]:
    """Convert an OSError of writing to a ConfigError that names the path: full disk, missing rights, invalid path.

    Args:
        place: file or folder that is written.
        word: argument of the command that names it, for the message.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:  # raised by a library about what it reads
            raise
        text = str(place) if len(str(place)) <= 200 else f"{str(place)[:200]}..."
        raise ConfigError(
            f"{word}: {text} cannot be written ({error.strerror}); give a folder that can be, on a disk with room"
        ) from error


def check_writable(folder: str | Path, word: str) -> None:
    """Refuse a folder in which no file can be created, before the work whose result it shall hold."""
    with writable(folder, word):
        tempfile.TemporaryFile(dir=folder).close()
