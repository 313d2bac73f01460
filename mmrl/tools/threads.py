"""Run functions in threads, with a timeout for each call."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any


@dataclass(eq=False)
class PendingCall:
    """Call that waits for a thread or is running; its result is never None."""

    name: str
    timeout_s: float
    started_at: float | None = None
    result: Any = None
    abandoned: bool = False  # it timed out: its result is discarded

    def is_done(self) -> bool:
        return self.result is not None or self.remaining_s() <= 0

    def remaining_s(self) -> float:
        """Seconds until the timeout."""
        return math.inf if self.started_at is None else self.started_at + self.timeout_s - time.monotonic()


class ThreadExecutor:
    """Thread pool. A call past its timeout is abandoned and its thread is replaced.

    Args:
        kind: of what is called, for messages, such as "tool".
        max_timeouts: number of abandoned calls of one name at which the run stops with an error.
        threads: number of concurrent calls.
    """

    def __init__(self, kind: str, max_timeouts: int = 64, threads: int = 16):
        self.kind, self.max_timeouts, self.threads = kind, max_timeouts, threads
        self._jobs: SimpleQueue[tuple[Callable[[], Any], PendingCall]] = SimpleQueue()
        self._num_threads = self._unfinished = 0  # number of threads without abandoned ones, and calls without a result
        self._timeouts: Counter[str] = Counter()
        self._changed = threading.Condition()

    def start(self, name: str, function: Callable[[], Any], timeout_s: float) -> PendingCall:
        """Start a call of a function. An exception of the function is the call's result."""
        pending = PendingCall(name, timeout_s)
        with self._changed:
            self._unfinished += 1
            self._jobs.put((function, pending))
            self._add_thread()
        return pending

    def wait(self, pending: Sequence[PendingCall], max_wait_s: float | None = None) -> None:
        """Wait until all calls are done or timed out; after `max_wait_s` seconds, until one of them is."""
        deadline = math.inf if max_wait_s is None else time.monotonic() + max_wait_s
        with self._changed:
            while not all(done := [p.is_done() for p in pending]):
                remaining = deadline - time.monotonic()
                if any(done) and remaining <= 0:
                    break
                next_end = min(p.remaining_s() for p in pending if p.result is None)
                self._changed.wait(min(max(next_end, 0), remaining if remaining > 0 else math.inf, 1.0) + 1e-3)

    def finish(self, pending: PendingCall) -> Any:
        """Return the result of a call that is done; a TimeoutError if it timed out."""
        with self._changed:
            if pending.result is None:
                pending.result, pending.abandoned = TimeoutError("it took too long"), True
                self._timeouts[pending.name] += 1
                self._num_threads, self._unfinished = self._num_threads - 1, self._unfinished - 1
                self._add_thread()
        if self._timeouts[pending.name] > self.max_timeouts:
            raise RuntimeError(
                f"{self.kind} {pending.name!r} has {self._timeouts[pending.name]} calls past their timeout, which "
                f"still run in threads; fix the {self.kind}, or run it in a process with limits of its own"
            )
        return pending.result

    def _add_thread(self) -> None:
        """Start another thread if calls wait for one."""
        if self._num_threads < min(self.threads, self._unfinished):
            self._num_threads += 1
            # daemon threads, because a call that hangs must not keep the process alive
            threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            function, pending = self._jobs.get()
            pending.started_at = time.monotonic()
            try:
                result = function()
            except BaseException as error:  # SystemExit ends only the call
                result = error
            with self._changed:
                if pending.abandoned:
                    return
                pending.result = result
                self._unfinished -= 1
                self._changed.notify_all()
