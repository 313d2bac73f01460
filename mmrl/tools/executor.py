"""Execute tool calls in threads, with a timeout and a limit on the result's size."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

import numpy as np

from mmrl.tools.base import Tool, ToolError, ToolOutput
from mmrl.tools.call_parser import ToolCall, UnknownTool, bind_arguments

log = logging.getLogger(__name__)

FAULTS = frozenset({"raised", "timed_out", "not_text", "not_image"})
"""Outcomes that are errors of the tool and not of the caller."""
TRUNCATED = " [cut]"


@dataclass(frozen=True)
class ToolResult:
    """Outcome of a tool call, its text and its images.

    `outcome` is "ok", "truncated" (longer than the tool's `max_chars`), the name of a ToolError (error of the caller),
    or one of FAULTS: "raised" (any other exception), "timed_out", "not_text" (no printable text), "not_image" (an image
    that is not uint8 [H, W, 3]).
    """

    outcome: str
    text: str
    images: tuple[np.ndarray, ...] = ()

    @property
    def fault(self) -> bool:
        return self.outcome in FAULTS

    @property
    def succeeded(self) -> bool:
        return self.outcome in ("ok", "truncated")


@dataclass(eq=False)
class PendingCall:
    """Tool call that waits for a thread or is running."""

    tool: str
    timeout_s: float
    started_at: float | None = None
    result: ToolResult | None = None
    abandoned: bool = False  # it timed out: its result is discarded

    def is_done(self) -> bool:
        return self.result is not None or self.remaining_s() <= 0

    def remaining_s(self) -> float:
        """Seconds until the timeout."""
        return math.inf if self.started_at is None else self.started_at + self.timeout_s - time.monotonic()


class ToolExecutor:
    """Thread pool for tool calls. A call past its timeout is abandoned and its thread is replaced.

    Args:
        max_timeouts: number of abandoned calls of one tool at which the run stops with an error.
        threads: number of concurrent calls.
    """

    def __init__(self, max_timeouts: int = 64, threads: int = 16):
        self.max_timeouts, self.threads = max_timeouts, threads
        self._jobs: SimpleQueue[tuple[Tool, dict[str, Any], PendingCall]] = SimpleQueue()
        self._num_threads = self._unfinished = 0  # number of threads without abandoned ones, and calls without a result
        self._timeouts: Counter[str] = Counter()
        self._warned: set[str] = set()
        self._changed = threading.Condition()

    def submit(self, call: ToolCall, tools: Mapping[str, Tool]) -> PendingCall:
        """Start a call; an invalid call has its error as result at once."""
        tool = tools.get(call.name)
        if tool is None:
            return reject(UnknownTool(f"there are {', '.join(tools)}"))
        try:
            arguments = bind_arguments(call, tool)
        except ToolError as error:
            return reject(error, call.name)
        pending = PendingCall(call.name, tool.timeout_s)
        with self._changed:
            self._unfinished += 1
            self._jobs.put((tool, arguments, pending))
            self._add_thread()
        return pending

    def wait(self, pending: Sequence[PendingCall], max_wait_s: float | None = None) -> None:
        """Wait until all calls are done or timed out; after `max_wait_s` seconds, until one of them is."""
        deadline = math.inf if max_wait_s is None else time.monotonic() + max_wait_s
        with self._changed:
            while not all(done := [p.is_done() for p in pending]):
                left = deadline - time.monotonic()
                if any(done) and left <= 0:
                    break
                next_end = min(p.remaining_s() for p in pending if p.result is None)
                self._changed.wait(min(max(next_end, 0), left if left > 0 else math.inf, 1.0) + 1e-3)

    def result(self, pending: PendingCall) -> ToolResult:
        """Return the result of a call that is done."""
        with self._changed:
            if pending.result is None:
                pending.result, pending.abandoned = ToolResult("timed_out", "it took too long"), True
                self._timeouts[pending.tool] += 1
                self._num_threads, self._unfinished = self._num_threads - 1, self._unfinished - 1
                self._add_thread()
        if pending.result.fault:
            self._warn(pending.tool, pending.result)
        if self._timeouts[pending.tool] > self.max_timeouts:
            raise RuntimeError(
                f"tool {pending.tool!r} has {self._timeouts[pending.tool]} calls past their timeout, which still run "
                "in threads of this process; fix the tool, or run it in a process with limits of its own"
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
            tool, arguments, pending = self._jobs.get()
            pending.started_at = time.monotonic()
            result = _execute(tool, arguments)
            with self._changed:
                if pending.abandoned:
                    return
                pending.result = result
                self._unfinished -= 1
                self._changed.notify_all()

    def _warn(self, tool: str, result: ToolResult) -> None:
        key = f"{tool}/{result.outcome}"
        if key not in self._warned:
            self._warned.add(key)
            log.warning("tool %r: %s (%s); counted as tools/%s", tool, result.outcome, result.text[:200], key)


def _execute(tool: Tool, arguments: dict[str, Any]) -> ToolResult:
    try:
        return _check_output(tool.run(**arguments), tool.max_chars)
    except ToolError as error:
        return ToolResult(type(error).__name__, str(error))
    except BaseException as error:  # SystemExit in a tool ends only the call
        return ToolResult("raised", f"{type(error).__name__}: {error}")


def reject(error: ToolError, tool: str = "none") -> PendingCall:
    """Return a call that is rejected before it is executed."""
    return PendingCall(tool, 0.0, result=ToolResult(type(error).__name__, str(error)))


def _check_output(value: Any, max_chars: int) -> ToolResult:
    output = value if isinstance(value, ToolOutput) else ToolOutput(value)
    for image in output.images:
        if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.shape[2:] != (3,) or not image.size:
            shape = getattr(image, "shape", "no array")
            return ToolResult("not_image", f"it gave an image of {getattr(image, 'dtype', type(image))} {shape}")
    return replace(_check_text(output.text, max_chars), images=tuple(output.images))


def _check_text(value: Any, max_chars: int) -> ToolResult:
    if not isinstance(value, str):
        return ToolResult("not_text", f"it gave {type(value).__name__}, not text")
    cut = value[:max_chars]
    if not all(c.isprintable() or c in "\n\t" for c in cut):
        return ToolResult("not_text", "it gave characters that are no text")
    return ToolResult("ok", value) if len(value) <= max_chars else ToolResult("truncated", cut + TRUNCATED)
