"""VerifiersAgent: an environment of the package verifiers plays the episodes of `rollout.agent`."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
from pathlib import Path
from typing import Any

from mmrl.tools.guest_process import GuestProcess

HOST = Path(__file__).with_name("host.py")
_POLL_S = 0.1


class VerifiersHost(GuestProcess):
    """A process in verifiers' environment that plays episodes of a taskset; it ends with the program.

    Args:
        python: of the environment.
        taskset: as verifiers names it.
        harness: that plays the episodes.
    """

    def __init__(self, python: str, taskset: str, harness: str):
        super().__init__([python, str(HOST), taskset, f"--harness={harness}", "--serve"])
        self._numbers, self._lock = itertools.count(), threading.Lock()
        self._waiting: dict[int, tuple[threading.Event, list[dict[str, Any]]]] = {}
        threading.Thread(target=self._read, name="verifiers", daemon=True).start()

    def play(self, request: dict[str, Any]) -> dict[str, Any]:
        """Play an episode and return the reply; waits in short steps, so that the agent can be stopped."""
        number, event, replies = next(self._numbers), threading.Event(), list[dict[str, Any]]()
        with self._lock:
            self._waiting[number] = event, replies
            try:
                self.write_line(json.dumps({"id": number, **request}))
            except OSError as error:
                raise RuntimeError("the process of the environment has ended") from error
        while not event.wait(_POLL_S):
            if self.is_over:
                event.wait(_POLL_S)
                break
        if not replies:
            raise RuntimeError(f"the process of the environment ended with status {self.status}")
        return replies[0]

    def _read(self) -> None:
        for line in self.lines():
            reply = json.loads(line)
            with self._lock:
                event, replies = self._waiting.pop(reply["id"])
            replies.append(reply)
            event.set()


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
        reply = VerifiersHost.find(self.python, self.taskset, self.harness).play(request)
        if "error" in reply:
            raise RuntimeError(f"taskset {self.taskset!r}: {reply['error']}")
        return {**reply["metrics"], "reward": float(reply["reward"])}
