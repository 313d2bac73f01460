"""Call a verifier's function on an answer within limits of processor time and memory.

Time and memory of a query, a drawing or a formula depend on what a policy wrote, and one call of a library cannot be
stopped from inside of its process. `run_limited` makes the call in a worker process, which the system ends at the limit
of its own processor time, so that a busy machine changes no score.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal, ParamSpec, TypeVar

from mmrl.rewards.worker import CallRaised, CallTimedOut, WorkerDied, WorkerPool

MEMORY_BYTES = 4 * 2**30
"""Address space of a worker process."""
_WAIT_S = 3600.0  # of a call that uses no processor time, and of one on a busy machine

P = ParamSpec("P")
T = TypeVar("T")
_state = {"worker": False}


class LimitPassed(Exception):
    """A call that passed its limits.

    Attributes:
        outcome: timed_out, out_of_memory, or died (a signal ended the process).
    """

    def __init__(self, outcome: Literal["timed_out", "out_of_memory", "died"], text: str):
        super().__init__(f"{outcome}: {text}")
        self.outcome = outcome


def run_limited(seconds: float, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return function(*args, **kwargs), called in a worker process; may be called from threads.

    Args:
        seconds: of processor time. The import of the function's module does not count.
        function: importable function of a module.
        args: of the function.
        kwargs: of the function.

    Raises:
        LimitPassed: the call used more than its time or memory, or its process ended.
        CallRaised: the function raised.
    """
    try:
        return _workers().call(seconds, function, args, kwargs)
    except CallTimedOut as error:
        raise LimitPassed("timed_out", str(error)) from error
    except WorkerDied as error:
        raise LimitPassed("died", str(error)) from error
    except CallRaised as error:
        if error.kind != "MemoryError":
            raise
        raise LimitPassed("out_of_memory", f"more than {MEMORY_BYTES // 2**20} MiB") from error


@contextmanager
def limit_cpu(seconds: float) -> Iterator[None]:
    """End this worker process once the body has used `seconds` of processor time, also within one call of a library.

    The limit around it holds again afterwards. Outside of a worker process of `run_limited` it limits nothing.
    """
    if not _state["worker"]:
        yield
        return
    before = signal.setitimer(signal.ITIMER_PROF, seconds)[0]
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, before)


@lru_cache(maxsize=1)
def _workers() -> WorkerPool:
    return WorkerPool(load_call, processes=max(1, min(8, os.cpu_count() or 1)), timeout_s=_WAIT_S)


def load_call() -> Callable[..., Any]:
    """Limit the memory of a worker process, and return the function that makes its calls."""
    import resource

    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the signal of the timer ends the process
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _state["worker"] = True
    return _call


def _call(seconds: float, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with limit_cpu(seconds):
        return function(*args, **kwargs)
