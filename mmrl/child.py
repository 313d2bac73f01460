"""A process that does not outlive the one that waits for it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from types import FrameType


def run(command: Sequence[str], env: Mapping[str, str]) -> None:
    """Wait for a command; when this process is told to end (SIGTERM, Ctrl-C), so is the command. Main thread only.

    Raises:
        subprocess.CalledProcessError: it ended with another code than 0.
    """

    def ended(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, ended)  # by default a process ends at once and leaves its children behind
    try:
        with subprocess.Popen(command, env=env) as child:
            try:
                code = child.wait()
            except BaseException:
                child.terminate()
                child.wait()
                raise
    finally:
        signal.signal(signal.SIGTERM, before)
    if code:
        raise subprocess.CalledProcessError(code, command)
