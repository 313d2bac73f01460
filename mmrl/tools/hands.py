"""Runs calls of tools side by side, each within its time and size, so that no tool can stop or flood a rollout."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass
class Pending:
    """A call that is under way."""

    tool: str
    deadline: float
    thread: threading.Thread | None
    answers: list[Answer] = field(default_factory=list)

    def done(self) -> bool:
        return bool(self.answers) or time.monotonic() >= self.deadline


class Hands:
    """Threads for calls. One that does not come back is left behind; a tool that leaves too many is given up.

    Args:
        most_lost: calls that may hang before the run stops with a message.
    """

    def __init__(self, most_lost: int = 64):
        self.most_lost = most_lost
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
        pending = Pending(call.name, time.monotonic() + tool.seconds, None)
        # daemons: a call that hangs for ever must not keep the process from ending
        pending.thread = threading.Thread(target=self._run, args=(tool, given, pending), daemon=True)
        pending.thread.start()
        return pending

    def wait(self, pending: list[Pending], patience: float | None = None) -> None:
        """Until all of them are answered or out of time; after `patience` seconds one of them is enough."""
        late = float("inf") if patience is None else time.monotonic() + patience
        with self._ring:
            while not all(done := [p.done() for p in pending]):
                now = time.monotonic()
                if any(done) and now >= late:
                    break
                ends = [p.deadline for p in pending if not p.done()] + ([late] if now < late else [])
                self._ring.wait(max(min(ends, default=now) - now, 0.0) + 1e-3)

    def end(self, pending: Pending) -> Answer:
        """The answer of a call that is done."""
        if pending.answers:
            answer = pending.answers[0]
        else:
            answer = Answer("timed_out", "it took too long")
            self._lost[pending.tool] += 1
        if answer.fault:
            self._warn(pending.tool, answer)
        if self._lost[pending.tool] > self.most_lost:
            raise RuntimeError(
                f"tool {pending.tool!r} has not come back from {self._lost[pending.tool]} calls, which still run in "
                "threads of this process; mend the tool, or give it limits of its own as a sandboxed process has"
            )
        return answer

    def _run(self, tool: Tool, given: dict[str, Any], pending: Pending) -> None:
        try:
            answer = _text(tool.run(**given), tool.most)
        except ToolError as error:
            answer = Answer(type(error).__name__, str(error))
        except BaseException as error:  # a tool that exits ends its call and nothing else
            answer = Answer("raised", f"{type(error).__name__}: {error}")
        with self._ring:
            pending.answers.append(answer)
            self._ring.notify_all()

    def _warn(self, tool: str, answer: Answer) -> None:
        key = f"{tool}/{answer.outcome}"
        if key not in self._told:
            self._told.add(key)
            log.warning("tool %r: %s (%s); counted as tools/%s", tool, answer.outcome, answer.text[:200], key)


def refusal(error: ToolError, tool: str = "none") -> Pending:
    """A call that is answered before it has begun."""
    return Pending(tool, 0.0, None, [Answer(type(error).__name__, str(error))])


def _text(said: Any, most: int) -> Answer:
    if not isinstance(said, str):
        return Answer("not_text", f"it gave {type(said).__name__}, not text")
    cut = said[:most]
    if not all(c.isprintable() or c in "\n\t" for c in cut):
        return Answer("not_text", "it gave characters that are no text")
    return Answer("ok", said) if len(said) <= most else Answer("cut", cut + CUT)
