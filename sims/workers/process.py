"""One process of a simulator: started, asked, and killed when it does not answer."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import sims
from mmrl.distributed import ending
from mmrl.distributed.waiting import poll_awake
from sims.host.wire import PROTOCOL, pack, unpack

START_S = 300.0
"""Seconds for imports and for the first environment, which may compile."""

# `sims` is made by hand, so that nothing else of this installation is on the other side's path
_BOOT = """
import json, os, sys, types
given = json.loads(sys.argv[1])
sys.path[:1] = []
sys.path.append(os.getcwd())
package = types.ModuleType("sims")
package.__path__ = given["sims"]
sys.modules["sims"] = package
from sims.host.worker import main
main(given["connection"], given["memory"], given["parent"], given["ending"])
"""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def _pack_seconds(seconds: float) -> bytes:
    """A `struct timeval`, which sockets take as their time limit."""
    return struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))


class WorkerDiedError(RuntimeError):
    """A process of a simulator ended or did not answer in time."""


class SimulatorError(RuntimeError):
    """A simulator in another process raised; the message has the last line of its traceback."""


@dataclass(frozen=True)
class Program:
    """What a process runs.

    Args:
        description: of the simulator, as `sims.host.build` takes it.
        python: interpreter; None: this one, which finds the modules that this process finds.
        timeout_s: seconds after which an answer counts as missing.
    """

    description: Any
    python: str | None = None
    timeout_s: float = 60.0

    @property
    def name(self) -> str:
        """The simulator's import path."""
        return str(self.description["_target_"])

    def variables(self) -> dict[str, str]:
        """Environment variables: one thread a process; this interpreter gets the module path of this process."""
        variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        if self.python is None:
            variables["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        return {**variables, **dict.fromkeys(_THREADS, "1")}


class Worker:
    """A running process.

    Args:
        program: what it runs.
        memory: descriptor of the file for observations, which it maps too.
    """

    def __init__(self, program: Program, memory: int):
        self.program = program
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        stderr = os.dup(2)
        local, remote = socket.socketpair()
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # of a process that is stopped within a message
            local.setsockopt(socket.SOL_SOCKET, option, _pack_seconds(program.timeout_s))
        settings = {"connection": remote.fileno(), "memory": memory, "sims": [str(path) for path in sims.__path__]}
        settings |= {"parent": os.getpid(), "ending": ending.__file__}
        command = [program.python or sys.executable, "-c", _BOOT, json.dumps(settings)]
        try:
            self.process = subprocess.Popen(
                command,
                env=program.variables(),
                pass_fds=(remote.fileno(), memory, stderr),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                start_new_session=True,  # a signal to the trainer's group is the trainer's
            )
        except OSError as error:
            local.close()
            os.close(stderr)
            raise ValueError(f"sim.python={program.python}: cannot be started: {error}") from error
        finally:
            remote.close()
        self._stderr = stderr
        self.connection = Connection(local.detach())

    def begin(self) -> None:
        """Send the requests of the start at once, so that several processes start side by side; `open` waits."""
        self.send("hello")
        self.send("build", description=self.program.description)
        self.send("release_stderr", descriptor=self._stderr)

    def open(self) -> dict[str, Any]:
        """Wait for the start and check the protocol; returns what `Host.do_build` returns."""
        hello = self.receive(timeout_s=START_S)
        if hello["protocol"] != PROTOCOL:
            raise SimulatorError(
                f"{self.program.name}: {hello['python']} speaks version {hello['protocol']} of the simulator protocol, "
                f"this mmrl version {PROTOCOL}; use the sims/host of one installation"
            )
        built = self.receive(timeout_s=START_S)
        self.receive()
        os.close(self._stderr)
        self._output.close()
        return {**built, "modules": hello["modules"]}

    def ask(self, request: str, timeout_s: float | None = None, **arguments: Any) -> Any:
        """Send a request and wait for its answer."""
        self.send(request, **arguments)
        return self.receive(timeout_s=timeout_s)

    def send(self, request: str, **arguments: Any) -> None:
        """Send a request; `receive` waits for the answer."""
        try:
            self.connection.send_bytes(pack({"do": request, **arguments}))
        except BlockingIOError as error:
            raise self._end_silent(self.program.timeout_s) from error
        except OSError as error:
            raise WorkerDiedError(self._explain_death()) from error

    def receive(self, moved: Callable[[list[int]], None] | None = None, timeout_s: float | None = None) -> Any:
        """Wait for the answer to a request.

        Args:
            moved: called with the environments that moved, after every control step of a step that is watched.
            timeout_s: None: the program's.

        Raises:
            SimulatorError: the simulator raised.
            WorkerDiedError: the process ended, or did not answer in time and was killed.
        """
        limit = self.program.timeout_s if timeout_s is None else timeout_s
        while True:
            try:
                if not poll_awake(self.connection, limit):
                    raise self._end_silent(limit)
                answer = unpack(self.connection.recv_bytes())
            except BlockingIOError as error:
                raise self._end_silent(self.program.timeout_s) from error
            except (EOFError, OSError) as error:
                raise WorkerDiedError(self._explain_death()) from error
            if "moved" in answer and moved is not None:
                moved(answer["moved"])
                self.send("go_on")
            elif "error" in answer:
                raise SimulatorError(f"{self.program.name}: {answer['error']}")
            else:
                return answer["ok"]

    def close(self) -> None:
        """Let the process end by itself, and kill it if it does not."""
        try:
            self.ask("close", timeout_s=5.0)
            self.process.wait(5.0)
        except (WorkerDiedError, SimulatorError, subprocess.TimeoutExpired):
            pass
        self.kill()

    def kill(self) -> None:
        """End the process and the processes that it started now."""
        self.connection.close()
        if self.process.poll() is None:
            ending.kill_tree(self.process.pid)
        else:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if not self._output.closed:  # it was not opened
            os.close(self._stderr)
            self._output.close()

    def _end_silent(self, limit_s: float) -> WorkerDiedError:
        """Kill a process that neither reads nor answers, such as one that is stopped."""
        self.kill()
        return WorkerDiedError(f"no answer within {limit_s:g} s; the process was killed")

    def _explain_death(self) -> str:
        try:
            code = self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.kill()
            return "the process closed its connection"
        ended = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"the process ended with {ended}{self._last_line()}"

    def _last_line(self) -> str:
        """The last line that it wrote while it started."""
        if self._output.closed:
            return ""
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""


def open_workers(program: Program, count: int, memory: int) -> tuple[list[Worker], list[dict[str, Any]]]:
    """Start processes side by side and wait for all of them.

    Raises:
        SimulatorError: one of them could not be started, with the reason.
    """
    workers: Sequence[Worker] = [Worker(program, memory) for _ in range(count)]
    try:
        for worker in workers:
            worker.begin()
        return list(workers), [worker.open() for worker in workers]
    except Exception as error:
        for worker in workers:
            worker.kill()
        if isinstance(error, WorkerDiedError):
            where = f" under {program.python}" if program.python else ""
            raise SimulatorError(f"{program.name}: cannot be started{where}: {error}") from error
        raise
