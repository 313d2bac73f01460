"""What a worker's function prints: shown on standard error, without control characters, and up to a limit."""

from __future__ import annotations

import os
import sys
import threading

LIMIT = 100_000  # bytes of one worker
_PIECE = 1 << 16


def show_output(descriptor: int) -> None:
    """Start a thread that shows what comes through a pipe, until its writers have gone."""
    threading.Thread(target=_show, args=(descriptor,), daemon=True, name="output of a worker").start()


def _show(descriptor: int) -> None:
    count = 0
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        while piece := pipe.read(_PIECE):  # what is not shown is read too, so that no function waits
            if count < LIMIT:
                _write(escape(piece[: LIMIT - count].decode(errors="replace")))
                if count + len(piece) >= LIMIT:
                    _write(f"\n... a worker printed {LIMIT:,} bytes; what it prints from now on is not shown\n")
            count += len(piece)


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):  # the terminal has gone, or the interpreter ends
        pass


def escape(text: str) -> str:
    """Write control characters of a terminal as \\x1b and the like; lines and tabs stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
