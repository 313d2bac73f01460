"""Steps that the training processes of an engine take together."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mmrl.distributed import parallel
from mmrl.engines.vllm.backend import EngineFailure


@contextmanager
def raise_together() -> Iterator[None]:
    """Raise an exception of one rank inside the context on every rank. Collective.

    Other ranks raise EngineFailure with the text of the first one; they would wait without end for a rank that left.
    """
    rank, processes = parallel.rank_and_size()
    if processes == 1:
        yield
        return
    local_error: Exception | None = None
    try:
        yield
    except Exception as error:
        local_error = error
    texts = parallel.gather([None if local_error is None else str(local_error) or type(local_error).__name__])
    failed = [(number, text) for number, text in enumerate(texts) if text is not None]
    if local_error is not None and failed[0][0] == rank:
        raise local_error
    if failed:
        raise EngineFailure(failed[0][1]) from local_error


def broadcast(item: Any) -> Any:
    """Return rank 0's item on every rank. Collective."""
    rank, _ = parallel.rank_and_size()
    return parallel.gather([item if rank == 0 else None])[0]


def spans_nodes() -> bool:
    """Whether the training processes run on more than one machine. Collective."""
    _, processes = parallel.rank_and_size()
    local = int(os.environ.get("LOCAL_WORLD_SIZE", processes))
    return len(set(parallel.gather([socket.gethostname()]))) > 1 or any(parallel.gather([local < processes]))
