"""The processes of one vector environment: a part of the environments each, started again when they die."""

from __future__ import annotations

import itertools
import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from gymnasium import spaces

from sims.host.shared import map_arrays, plan_layout
from sims.host.spaces import build_space
from sims.workers.process import START_S, Program, SimulatorError, WorkerDiedError, open_workers

log = logging.getLogger(__name__)


class EnvironmentPool:
    """Processes with equal parts of num_envs environments, whose observations they write to one memory file.

    Args:
        program: what they run.
        num_envs: in all of them.
        count: of processes.
    """

    def __init__(self, program: Program, num_envs: int, count: int):
        self.program = program
        bounds = [round(k * num_envs / count) for k in range(count + 1)]
        self.parts = [slice(*pair) for pair in itertools.pairwise(bounds)]
        self.failures: list[str | None] = [None] * count
        """Why a process cannot be asked until it is started again."""
        self.restarts = 0
        # a file without a name: it is gone with the last process that has it open
        self._memory = tempfile.TemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)  # noqa: SIM115
        self.workers, _ = open_workers(program, count, self._memory.fileno())
        try:
            for k in range(count):
                self._send_make(k)
            self.made, *_ = [self._receive_made(k) for k in range(count)]
            self.observation_space: spaces.Space = build_space(self.made["observation"])
            self._layout = plan_layout(self.observation_space, num_envs)
            self._memory.truncate(self._layout[1])
            self.arrays = map_arrays(self._memory.fileno(), *self._layout)
            """Numeric parts of observations by name, [num_envs, ...]."""
            for k in range(count):
                self._map(k)
        except Exception:
            self.close()
            raise

    def _send_make(self, k: int) -> None:
        self.workers[k].send("make", num_envs=self.parts[k].stop - self.parts[k].start)

    def _receive_made(self, k: int) -> Any:
        try:
            return self.workers[k].receive(timeout_s=START_S)
        except WorkerDiedError as error:
            raise SimulatorError(f"{self.program.name}: its environments cannot be made: {error}") from error

    def _map(self, k: int) -> None:
        self.workers[k].ask("map", first=self.parts[k].start, layout=self._layout[0], size=self._layout[1])

    @property
    def running(self) -> list[int]:
        """Numbers of the processes that can be asked."""
        return [k for k, failure in enumerate(self.failures) if failure is None]

    def send(self, k: int, request: str, **arguments: Any) -> None:
        """Send a request to one process; if it died, that is noted."""
        try:
            self.workers[k].send(request, **arguments)
        except WorkerDiedError as error:
            self._note(k, error)

    def receive(self, asked: Sequence[int], moved: Callable[[int, list[int]], None] | None = None) -> dict[int, Any]:
        """The answers of processes by number, without those that died.

        Args:
            asked: the processes that a request was sent to.
            moved: called with a process's first environment and those of its environments that moved, during a step.

        Raises:
            SimulatorError: a simulator raised; all answers were taken.
        """
        replies: dict[int, Any] = {}
        raised: Exception | None = None
        for k in asked:
            if self.failures[k] is not None:
                continue
            watch = None if moved is None else lambda envs, first=self.parts[k].start: moved(first, envs)
            try:
                replies[k] = self.workers[k].receive(watch)
            except WorkerDiedError as error:
                self._note(k, error)
            except SimulatorError as error:
                raised = raised or error
        if raised is not None:
            raise raised
        return replies

    def ask(self, k: int, request: str, **arguments: Any) -> Any:
        """Send a request to one process and return its answer.

        Raises:
            SimulatorError: the simulator raised, or its process died, which is noted.
        """
        try:
            return self.workers[k].ask(request, **arguments)
        except WorkerDiedError as error:
            if self.failures[k] is None:
                self._note(k, error)
            raise SimulatorError(f"{self.failures[k]} ({request})") from error

    def _note(self, k: int, error: WorkerDiedError) -> None:
        self.failures[k] = f"process {k + 1} of {len(self.parts)} of {self.program.name}: {error}"
        log.error("%s; the episodes that it was playing are counted as errors", self.failures[k])

    def restart(self, k: int) -> None:
        """Start a process again that died, with new environments, which must be reset."""
        self.workers[k].kill()
        (self.workers[k],), _ = open_workers(self.program, 1, self._memory.fileno())
        self._send_make(k)
        self._receive_made(k)
        self._map(k)
        self.failures[k] = None
        self.restarts += 1

    def find(self, i: int) -> tuple[int, int]:
        """The process of environment i, and the environment's number there."""
        k = next(k for k, rows in enumerate(self.parts) if i < rows.stop)
        return k, i - self.parts[k].start

    def close(self) -> None:
        """End all processes."""
        for worker in self.workers:
            worker.close()
        self._memory.close()
