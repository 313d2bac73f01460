"""The task of an initial state in a simulator with several tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def task_of(seed: int, tasks: Sequence[str], held_out_tasks: Sequence[str] = ()) -> str:
    """The task that an initial state poses: a function of its seed alone, equally often.

    Args:
        seed: of the state; odd seeds are held out, as in `sims.task`.
        tasks: names.
        held_out_tasks: names of the tasks of held-out states; none: the same.
    """
    names = held_out_tasks if seed & 1 and held_out_tasks else tasks
    digest = hashlib.blake2b(repr(("task", seed)).encode(), digest_size=8).digest()
    return names[int.from_bytes(digest, "little") % len(names)]
