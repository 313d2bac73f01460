"""Programs that nobody has read, run where they can do no harm."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mmrl.tools.base import Tool, ToolError
from mmrl.types import Prompt

WORKER = Path(__file__).with_name("sandbox_worker.py")


class ExecutorDown(RuntimeError):
    """Programs cannot be run: it says nothing about any of them."""


@dataclass(frozen=True)
class Limits:
    """What a program may use.

    Args:
        seconds: from its start to its end.
        cpu_seconds: of computing, whole ones.
        memory_mb: of address space.
        files_mb: of each file in its scratch folder.
        output: bytes that it may print.
    """

    seconds: float = 5.0
    cpu_seconds: int = 2
    memory_mb: int = 256
    files_mb: int = 1
    output: int = 10_000

    def __post_init__(self) -> None:
        low = [name for name, value in asdict(self).items() if value <= 0]
        if low:
            raise ValueError(f"limits.{low[0]} must be > 0, got {getattr(self, low[0])}")


@dataclass(frozen=True)
class Ran:
    """How a program ended.

    `outcome` is "ok", "raised" (an exception, its name in `reason`), "timed_out", "out_of_memory", "too_long" (it
    printed more than it may), "not_text" (what it printed is not UTF-8), or "killed" (by a signal, its number).
    """

    outcome: str
    output: str
    reason: str


class Sandbox:
    """Python programs, each in a process of its own: in a private scratch folder outside of which it can change no
    file, without sockets, further processes and other programs, and within its limits. Linux only.

    A worker process, begun at the first use, forks those processes: a millisecond or two each.

    Args:
        limits: of each program.
    """

    def __init__(self, limits: Limits | None = None):
        self.limits = limits or Limits()
        self._worker: subprocess.Popen[str] | None = None

    def run(self, source: str) -> Ran:
        """Run one program and say how it ended. Raises ExecutorDown when nothing can be run."""
        return self.run_all([source])[0]

    def run_all(self, sources: Sequence[str]) -> list[Ran]:
        """One program after the other; a worker that dies is begun again once."""
        done = []
        for source in sources:
            said = self._ask(source) or self._ask(source)
            if said is None:
                raise ExecutorDown("the sandbox's worker died twice at one program; is there memory and disk left?")
            if said["outcome"] == "confine":
                raise ExecutorDown(f"programs cannot be confined on this machine, so none is run: {said['reason']}")
            done.append(Ran(**said))
        return done

    def close(self) -> None:
        """End the worker; the next program begins another."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            worker.communicate()

    def __del__(self) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"limits": self.limits, "_worker": None}  # copies have workers of their own

    def _ask(self, source: str) -> dict[str, str] | None:
        worker = self._running()
        assert worker.stdin is not None and worker.stdout is not None
        try:
            worker.stdin.write(json.dumps({"source": source, "limits": asdict(self.limits)}) + "\n")
            worker.stdin.flush()
            ready, _, _ = select.select([worker.stdout], [], [], self.limits.seconds + 30)
            line = worker.stdout.readline() if ready else ""
        except OSError:
            line = ""
        if line:
            return json.loads(line)
        self.close()
        return None

    def _running(self) -> subprocess.Popen[str]:
        if self._worker is None or self._worker.poll() is not None:
            if not sys.platform.startswith("linux"):
                raise ExecutorDown(f"programs are confined with means of Linux, and this is {sys.platform}")
            self._worker = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={},
            )
        return self._worker


class ProgramFailed(ToolError):
    """A program did not end well; how is in the message."""


class Python(Tool):
    """Runs a Python program in a sandbox and answers what it printed.

    Args:
        limits: of each program.
        most: characters of an answer.
    """

    def __init__(self, limits: Limits | None = None, most: int = 1000):
        self.limits, self.most = limits or Limits(), most
        self.seconds = self.limits.seconds + 5.0  # the sandbox ends a program before the tool's own time is over

    @cached_property
    def _sandbox(self) -> Sandbox:
        return Sandbox(self.limits)

    def start(self, prompt: Prompt) -> Python:
        return Python(self.limits, self.most)  # a worker answers one caller at a time

    def finish(self) -> None:
        if "_sandbox" in self.__dict__:
            self._sandbox.close()

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
