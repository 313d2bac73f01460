"""Run untrusted programs in a sandbox."""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mmrl.tools.sandbox.limits import ExecutorDown, Limits, Ran
from mmrl.tools.sandbox.worker.messages import read_message, write_message
from mmrl.tools.sandbox.worker.scratch import empty_folder

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent
_START = 60.0  # time limit of a worker's start, seconds
# Hashes of strings, and so the order of sets, must not differ between workers, and the flag -I ignores PYTHONHASHSEED.
# Its parts in its place: -P and -s keep the working directory and the user's packages out of sys.path, and the
# environment has nothing else. -S keeps out all installed packages.
_FLAGS = ("-P", "-s", "-S", "-B", "-X", "utf8")
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}
# The worker's files need the standard library alone: their packages are entered without what else those import, and
# without a place in sys.path, so that no program finds the project.
_COMMAND = """
import sys, types
for name in ("mmrl", "mmrl.tools", "mmrl.tools.sandbox"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [{folder!r}]
from mmrl.tools.sandbox.worker.main import main
main(unsafe={unsafe})
"""


class Sandbox:
    """Python programs, each in a process of its own that reads the standard library alone, writes in a scratch folder
    of limited size, has no sockets, further processes, other programs or terminal, and stays within its limits.
    Linux only; docs/security.md says what is contained where.

    A worker process, begun at the first use, forks those processes: a few milliseconds each.

    Args:
        limits: of each program.
        unsafe: run programs even if this machine lacks a part of the confinement (Landlock, seccomp, Linux); a warning
            names what is missing. Only for programs that you trust.
    """

    def __init__(self, limits: Limits | None = None, unsafe: bool = False):
        self.limits, self.unsafe = limits or Limits(), unsafe
        self._worker: subprocess.Popen[bytes] | None = None
        self._folder: str | None = None
        self._owner: int | None = None  # the process that began the worker

    def run(self, source: str) -> Ran:
        """Run one program and return its result. Raises ExecutorDown if no program can be run."""
        return self.run_all([source])[0]

    def run_all(self, sources: Sequence[str]) -> list[Ran]:
        """Run programs one after the other; a worker that dies is restarted once."""
        done = []
        for source in sources:
            reply = self._ask(source) or self._ask(source)
            if reply is None:
                raise ExecutorDown("the sandbox's worker died twice at one program; check free memory and disk space")
            if "down" in reply:
                raise ExecutorDown(f"the sandbox could not start a program: {reply['down']}")
            done.append(Ran(reply["outcome"], reply["output"], reply["reason"]))
        return done

    def close(self) -> None:
        """End the worker and its running program; the next program starts another worker."""
        worker, self._worker = self._worker, None
        if self._owner != os.getpid():  # this is a fork, and the process that started the worker still uses it
            worker, self._folder = None, None
        if worker is not None:
            assert worker.stdin is not None and worker.stdout is not None
            worker.stdin.close()  # the worker ends its program and itself
            try:
                worker.wait(5)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            worker.stdout.close()
        folder, self._folder = self._folder, None
        if folder is not None and os.path.isdir(folder):  # the worker was killed before it could remove it
            try:
                empty_folder(folder)
                os.rmdir(folder)
            except OSError as error:
                log.warning("the scratch folder %s of a sandbox could not be removed: %s", folder, error)

    def __del__(self) -> None:
        if getattr(self, "_worker", None) is not None:
            self.close()

    def __getstate__(self) -> dict[str, Any]:
        # copies have workers of their own
        return {"limits": self.limits, "unsafe": self.unsafe, "_worker": None, "_folder": None, "_owner": None}

    def _ask(self, source: str) -> dict[str, Any] | None:
        worker = self._running()
        if worker is None:
            return None
        assert worker.stdin is not None and worker.stdout is not None
        try:
            write_message(worker.stdin.fileno(), json.dumps({"source": source, "limits": asdict(self.limits)}).encode())
            if select.select([worker.stdout], [], [], self.limits.seconds + 30)[0]:
                return json.loads(read_message(worker.stdout.fileno()))
        except (OSError, EOFError):
            pass
        self.close()
        return None

    def _running(self) -> subprocess.Popen[bytes] | None:
        """Return the worker, started if there is none; None if it died before its first message."""
        if self._worker is not None and self._owner == os.getpid() and self._worker.poll() is None:
            return self._worker
        self.close()
        if not self.unsafe and not sys.platform.startswith("linux"):
            raise _refusal(f"it is {sys.platform}, and the sandbox is made of Landlock and seccomp, which Linux has")
        worker = self._worker = subprocess.Popen(
            [sys.executable, *_FLAGS, "-c", _COMMAND.format(folder=str(FOLDER), unsafe=self.unsafe)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_ENVIRONMENT,
            bufsize=0,
            start_new_session=True,  # without a terminal
        )
        self._owner = os.getpid()
        assert worker.stdout is not None
        try:
            if not select.select([worker.stdout], [], [], _START)[0]:
                raise EOFError
            hello = json.loads(read_message(worker.stdout.fileno()))
        except (OSError, EOFError):
            self.close()
            return None
        if "down" in hello:
            self.close()
            raise _refusal(hello["down"])
        self._folder = hello["folder"]
        if hello["missing"]:
            log.warning("unsafe sandbox: programs run without what this machine lacks: %s", "; ".join(hello["missing"]))
        return worker


def _refusal(reason: str) -> ExecutorDown:
    return ExecutorDown(
        f"programs cannot be confined on this machine, so none is run: {reason}. Use a machine that has it, or pass "
        "unsafe=True (a task: unsafe_sandbox=true) to run programs that you have read"
    )
