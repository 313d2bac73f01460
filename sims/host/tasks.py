"""The task of an initial state in a simulator with several tasks."""

from __future__ import annotations

import hashlib


def choose_task(seed: int, count: int) -> int:
    """Number of the task, below `count`, that an initial state poses: a function of its seed alone, equally often."""
    digest = hashlib.blake2b(repr(("task", seed)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % count
