"""Output whose reader has gone, as in `mmrl fit ... | head -1`: the run goes on, and what it prints is dropped."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class DroppingStream:
    """Text stream that writes to another one until its reader has gone, and then to nothing.

    Args:
        stream: standard output or standard error.
    """

    def __init__(self, stream: Any):
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._drop()

    def _drop(self) -> None:
        """Point the descriptor at /dev/null, also for the processes that this one starts and for Python's own flush at
        its end."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._stream.fileno())
        os.close(nothing)
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def drop_closed_output() -> Iterator[None]:
    """Use `DroppingStream` for standard output and standard error inside the context."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = DroppingStream(sys.stdout), DroppingStream(sys.stderr)  # type: ignore[assignment]
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before
