"""Run a subprocess that ends with its parent."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import FrameType


def run(command: Sequence[str], env: Mapping[str, str]) -> None:
    """Wait for a command; forward SIGTERM and Ctrl-C to it. Main thread only.

    Then this waits until the command has ended, which may take it until a safe point. On Linux the command is killed
    too when this process is killed and cannot forward a signal.

    Raises:
        subprocess.CalledProcessError: it ended with another code than 0.
    """

    def on_signal(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.getsignal(signal.SIGTERM)
    if before in (signal.SIG_DFL, None):  # by default a process ends at once and leaves its children behind
        signal.signal(signal.SIGTERM, on_signal)
    try:
        with subprocess.Popen(command, env=env, preexec_fn=_PREPARE) as child:
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


_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None  # found before the fork, after which little is safe


def _die_with_parent() -> None:
    """In the new process: be killed by the kernel when the process that started it ends."""
    _LIBRARY.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # type: ignore[union-attr]


_PREPARE = _die_with_parent if _LIBRARY is not None else None
