"""Tool that runs Python programs in the sandbox."""

from __future__ import annotations

from collections import defaultdict, deque
from functools import cached_property

from mmrl.tools.base import Tool, ToolError
from mmrl.tools.sandbox.limits import Limits
from mmrl.tools.sandbox.sandbox import Sandbox
from mmrl.types import Prompt

_MOST_IDLE = 16
_idle: defaultdict[tuple[Limits, bool], deque[Sandbox]] = defaultdict(lambda: deque(maxlen=_MOST_IDLE))
"""Sandboxes of episodes that are over, by their limits and whether they are unsafe."""


class ProgramFailed(ToolError):
    """A program failed; the message has the outcome and the reason."""


class Python(Tool):
    """Run a Python program in a sandbox and return what it printed. Episodes that follow each other share a worker,
    in which no program leaves anything.

    Args:
        limits: of each program.
        max_chars: of a result.
        unsafe: run programs where this machine cannot confine them (see Sandbox).
    """

    def __init__(self, limits: Limits | None = None, max_chars: int = 1000, unsafe: bool = False):
        self.limits, self.max_chars, self.unsafe = limits or Limits(), max_chars, unsafe
        self.timeout_s = self.limits.seconds + 5.0  # the sandbox ends a program before the tool's timeout

    @cached_property
    def _sandbox(self) -> Sandbox:
        try:
            return _idle[self.limits, self.unsafe].pop()
        except IndexError:
            return Sandbox(self.limits, self.unsafe)

    def start(self, prompt: Prompt) -> Python:
        return Python(self.limits, self.max_chars, self.unsafe)  # a worker serves one caller at a time

    def finish(self) -> None:
        if "_sandbox" in self.__dict__:
            _idle[self.limits, self.unsafe].append(self.__dict__.pop("_sandbox"))

    def run(self, code: str) -> str:  # type: ignore[override]
        """
        Run a Python program.

        Args:
            code: the program; what it prints is the answer.
        """
        done = self._sandbox.run(code)
        if done.outcome not in ("ok", "too_long"):
            raise ProgramFailed(f"{done.outcome} {done.reason}".strip())
        return done.output
