"""Tool that runs Python programs in the sandbox."""

from __future__ import annotations

from collections import deque

from mmrl.tools.base import Tool, ToolError
from mmrl.tools.sandbox.limits import Limits
from mmrl.tools.sandbox.sandbox import Sandbox

_MOST_IDLE = 16
_idle: dict[tuple[Limits, bool], deque[Sandbox]] = {}
"""Sandboxes in which no program runs, by their limits and whether they are unsafe."""


class ProgramFailed(ToolError):
    """A program failed; the message has the outcome and the reason."""


class Python(Tool):
    """Run a Python program in a sandbox and return what it printed. Calls that follow each other share a worker, in
    which no program leaves anything.

    Args:
        limits: of each program.
        max_chars: of a result.
        unsafe: run programs where this machine cannot confine them (see Sandbox).
    """

    def __init__(self, limits: Limits | None = None, max_chars: int = 1000, unsafe: bool = False):
        self.limits, self.max_chars, self.unsafe = limits or Limits(), max_chars, unsafe
        self.timeout_s = self.limits.seconds + 5.0  # the sandbox ends a program before the tool's timeout

    def run(self, code: str) -> str:  # type: ignore[override]
        """
        Run a Python program.

        Args:
            code: the program; what it prints is the answer.
        """
        # a worker serves one call at a time: a call that was abandoned at its timeout keeps its sandbox until it ends
        idle = _idle.setdefault((self.limits, self.unsafe), deque(maxlen=_MOST_IDLE))
        try:
            sandbox = idle.pop()
        except IndexError:
            sandbox = Sandbox(self.limits, self.unsafe)
        done = sandbox.run(code)
        idle.append(sandbox)
        if done.outcome not in ("ok", "too_long"):
            raise ProgramFailed(f"{done.outcome} {done.reason}".strip())
        return done.output
