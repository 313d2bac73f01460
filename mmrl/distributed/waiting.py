"""Wait for another process without counting the time in which this process was stopped itself."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection

_LONGEST_S = 1.0  # of a slice
_SLICES = 4  # at least


def poll_awake(connection: Connection, limit_s: float, check: Callable[[], None] | None = None) -> bool:
    """Whether a connection has something to read within a time limit.

    The limit is the sum of short slices: a process that was stopped with all others, and goes on, finds at most one
    slice of its limit gone, so that it ends no worker for a time in which no process ran.

    Args:
        connection: to the other process.
        limit_s: in seconds.
        check: called after every slice in which nothing came; may raise.
    """
    slice_s = min(_LONGEST_S, limit_s / _SLICES)
    left = limit_s
    while not connection.poll(min(slice_s, left)):
        left -= slice_s
        if check is not None:
            check()
        if left <= 0:
            return connection.poll()
    return True
