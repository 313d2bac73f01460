"""Runs calls of tools side by side, each within its time and size, so that no tool can stop or flood a rollout."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from mmrl.tools.base import Tool, ToolError
from mmrl.tools.markup import Call, UnknownTool, arguments

log = logging.getLogger(__name__)

FAULTS = frozenset({"raised", "timed_out", "not_text"})
"""Outcomes that are the tool's doing and not the caller's."""
CUT = " [cut]"


@dataclass(frozen=True)
class Answer:
    """What became of a call.

    `outcome` is "ok", "cut" (an answer longer than the tool may give), the name of a ToolError (the call was at fault),
    or one of FAULTS: "raised" (any other exception), "timed_out", "not_text" (bytes, or characters that are no text).
    """

    outcome: str
    text: str

    @property
    def fault(self) -> bool:
        return self.outcome in FAULTS

    @property
    def served(self) -> bool:
        return self.outcome in ("ok", "cut")


@dataclass(eq=False)
class Pending:
    """A call that waits or is under way."""

    tool: str
    seconds: float
    begun: float | None = None
    answer: Answer | None = None
    lost: bool = False  # nobody waits for it any more

    def done(self) -> bool:
        return self.answer is not None or self.late() <= 0

    def late(self) -> float:
        """Seconds until it is out of time."""
        return math.inf if self.begun is None else self.begun + self.seconds - time.monotonic()


class Hands:
    """A few threads for calls. One that does not come back is left behind, and another takes its place; a tool that
    leaves too many is given up.

    Args:
        most_lost: calls of a tool that may hang before the run stops with a message.
        threads: calls at the same time.
    """

    def __init__(self, most_lost: int = 64, threads: int = 16):
        self.most_lost, self.threads = most_lost, threads
        self._jobs: SimpleQueue[tuple[Tool, dict[str, Any], Pending]] = SimpleQueue()
        self._live = self._open = 0  # threads that are not lost, and calls without an answer
        self._lost: Counter[str] = Counter()
        self._told: set[str] = set()
        self._ring = threading.Condition()

    def begin(self, call: Call, tools: Mapping[str, Tool]) -> Pending:
        """Start a call; it is answered at once where it is at fault."""
        tool = tools.get(call.name)
        if tool is None:
            return refusal(UnknownTool(f"there are {', '.join(tools)}"))
        try:
            given = arguments(call, tool)
        except ToolError as error:
            return refusal(error, call.name)
        pending = Pending(call.name, tool.seconds)
        with self._ring:
            self._open += 1
            self._jobs.put((tool, given, pending))
            self._hire()
        return pending

    def wait(self, pending: Sequence[Pending], patience: float | None = None) -> None:
        """Until all of them are answered or out of time; after `patience` seconds one of them is enough."""
        late = math.inf if patience is None else time.monotonic() + patience
        with self._ring:
            while not all(done := [p.done() for p in pending]):
                left = late - time.monotonic()
                if any(done) and left <= 0:
                    break
                next_end = min(p.late() for p in pending if p.answer is None)
                self._ring.wait(min(max(next_end, 0), left if left > 0 else math.inf, 1.0) + 1e-3)

    def end(self, pending: Pending) -> Answer:
        """The answer of a call that is done."""
        with self._ring:
            if pending.answer is None:
                pending.answer, pending.lost = Answer("timed_out", "it took too long"), True
                self._lost[pending.tool] += 1
                self._live, self._open = self._live - 1, self._open - 1
                self._hire()
        if pending.answer.fault:
            self._warn(pending.tool, pending.answer)
        if self._lost[pending.tool] > self.most_lost:
            raise RuntimeError(
                f"tool {pending.tool!r} has not come back from {self._lost[pending.tool]} calls, which still run in "
                "threads of this process; mend the tool, or give it limits of its own as a sandboxed process has"
            )
        return pending.answer

    def _hire(self) -> None:
        """Another thread where calls wait for one."""
        if self._live < min(self.threads, self._open):
            self._live += 1
            # daemons: a call that hangs for ever must not keep the process from ending
            threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            tool, given, pending = self._jobs.get()
            pending.begun = time.monotonic()
            answer = _answered(tool, given)
            with self._ring:
                if pending.lost:
                    return
                pending.answer = answer
                self._open -= 1
                self._ring.notify_all()

    def _warn(self, tool: str, answer: Answer) -> None:
        key = f"{tool}/{answer.outcome}"
        if key not in self._told:
            self._told.add(key)
            log.warning("tool %r: %s (%s); counted as tools/%s", tool, answer.outcome, answer.text[:200], key)


def _answered(tool: Tool, given: dict[str, Any]) -> Answer:
    try:
        return _text(tool.run(**given), tool.most)
    except ToolError as error:
        return Answer(type(error).__name__, str(error))
    except BaseException as error:  # a tool that exits ends its call and nothing else
        return Answer("raised", f"{type(error).__name__}: {error}")


def refusal(error: ToolError, tool: str = "none") -> Pending:
    """A call that is answered before it has begun."""
    return Pending(tool, 0.0, answer=Answer(type(error).__name__, str(error)))


def _text(said: Any, most: int) -> Answer:
    if not isinstance(said, str):
        return Answer("not_text", f"it gave {type(said).__name__}, not text")
    cut = said[:most]
    if not all(c.isprintable() or c in "\n\t" for c in cut):
        return Answer("not_text", "it gave characters that are no text")
    return Answer("ok", said) if len(said) <= most else Answer("cut", cut + CUT)
