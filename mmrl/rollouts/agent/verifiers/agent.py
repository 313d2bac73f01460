"""VerifiersAgent: an environment of the package verifiers plays the episodes of `rollout.agent`."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

HOST = Path(__file__).with_name("host.py")
_POLL_S = 0.1
_HOSTS: dict[tuple[str, ...], VerifiersHost] = {}
_LOCK = threading.Lock()


class VerifiersHost:
    """A process in verifiers' environment that plays episodes of a taskset; it ends with the program.

    Args:
        command: that starts it.
    """

    def __init__(self, command: tuple[str, ...]):
        variables = {**os.environ, "PATH": f"{Path(command[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH", "")]))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process: Any = subprocess.Popen(command, env=variables, start_new_session=True, **pipes)  # type: ignore
        self._numbers, self._lock = itertools.count(), threading.Lock()
        self._waiting: dict[int, tuple[threading.Event, list[dict[str, Any]]]] = {}
        threading.Thread(target=self._read, name="verifiers", daemon=True).start()
        atexit.register(self.close)

    @property
    def is_over(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def play(self, request: dict[str, Any]) -> dict[str, Any]:
        """Play an episode and return the reply; waits in short steps, so that the agent can be stopped."""
        number, event, replies = next(self._numbers), threading.Event(), list[dict[str, Any]]()
        with self._lock:
            self._waiting[number] = event, replies
            try:
                self._process.stdin.write(json.dumps({"id": number, **request}) + "\n")
                self._process.stdin.flush()
            except OSError as error:
                raise RuntimeError("the process of the environment has ended") from error
        while not event.wait(_POLL_S):
            if self.is_over:
                event.wait(_POLL_S)
                break
        if not replies:
            raise RuntimeError(f"the process of the environment ended with status {self._process.poll()}")
        return replies[0]

    def _read(self) -> None:
        for line in self._process.stdout:
            reply = json.loads(line)
            with self._lock:
                event, replies = self._waiting.pop(reply["id"])
            replies.append(reply)
            event.set()

    def close(self) -> None:
        """End the process: its stdin closes, and after some seconds it is killed."""
        try:
            self._process.stdin.close()
            self._process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()


def find_host(python: str, taskset: str, harness: str) -> VerifiersHost:
    """Return the running host of a taskset; one that has ended is started again."""
    command = (python, str(HOST), taskset, f"--harness={harness}", "--serve")
    with _LOCK:
        if command not in _HOSTS or _HOSTS[command].is_over:
            _HOSTS[command] = VerifiersHost(command)
        return _HOSTS[command]


class VerifiersAgent:
    """Agent that lets a taskset's harness play the task of a row, and returns the environment's reward and metrics.

    Rows have the column `number`, of the task; taskset and Python are code, which no row names.

    Args:
        taskset: as verifiers names it.
        python: of an environment with verifiers 0.4.
        harness: that plays the episodes.
    """

    def __init__(self, taskset: str, python: str, harness: str = "null"):
        if shutil.which(python) is None:
            raise ValueError(f"VerifiersAgent({taskset!r}): no program {python!r}; name a Python with verifiers")
        self.taskset, self.python, self.harness = taskset, python, harness

    def __call__(self, number: int, base_url: str, model: str, api_key: str) -> dict[str, float]:
        """Play an episode.

        Raises:
            RuntimeError: the environment failed, with its reason.
        """
        request = {"number": number, "base_url": base_url, "model": model, "api_key": api_key}
        reply = find_host(self.python, self.taskset, self.harness).play(request)
        if "error" in reply:
            raise RuntimeError(f"taskset {self.taskset!r}: {reply['error']}")
        return {**reply["metrics"], "reward": float(reply["reward"])}
