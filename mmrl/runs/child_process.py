"""Run a subprocess that ends with its parent."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import FrameType


def run(command: Sequence[str], env: Mapping[str, str]) -> None:
    """Run a command and wait for its end; forward SIGTERM and Ctrl-C to it. Main thread only.

    After a signal, this waits until the command has ended at its next safe point. On Linux the kernel kills the command
    when this process is killed and so cannot forward a signal.

    Raises:
        subprocess.CalledProcessError: the command's exit status is not 0.
    """

    def on_signal(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.getsignal(signal.SIGTERM)
    if before in (signal.SIG_DFL, None):  # the default handler ends this process without ending the child
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
_LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None  # before the fork: dlopen is unsafe after it


def _die_with_parent() -> None:
    """Ask the kernel to kill this new process when its parent ends."""
    _LIBRARY.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # type: ignore[union-attr]


_PREPARE = _die_with_parent if _LIBRARY is not None else None
