"""Server process in a process group of its own, which ends when this process ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mmrl.engines.vllm.servers import guard
from mmrl.files.atomic import append_to

LAUNCHER = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
LAUNCHER_PREFIXES = ("LOCAL_WORLD", "GROUP_", "ROLE_", "TORCHELASTIC_")  # of torchrun


class ServerProcess:
    """Command that runs under `guard`; its output goes to `log`."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None):
        variables = {name: value for name, value in os.environ.items() if not _is_launchers(name)}  # no rank
        with append_to(log) as out:
            self._guard = subprocess.Popen(
                [sys.executable, guard.__file__],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env=variables | dict(environment or {}),
                start_new_session=True,  # Ctrl-C in a terminal reaches the trainer only
            )
        self.group = self._guard.pid
        assert self._guard.stdin is not None
        self._guard.stdin.write(json.dumps(list(command)).encode() + b"\n")
        self._guard.stdin.flush()

    @property
    def alive(self) -> bool:
        return self._guard.poll() is None

    def stop(self, kill: bool = False) -> None:
        """End the whole group and wait for it: by SIGTERM first, or at once."""
        if not kill:
            assert self._guard.stdin is not None
            with contextlib.suppress(OSError):
                self._guard.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guard.wait(guard.GRACE + 5)
        with contextlib.suppress(ProcessLookupError):  # also when the guard itself was killed before the others
            os.killpg(self.group, signal.SIGKILL)
        self._guard.wait()


def _is_launchers(name: str) -> bool:
    """Whether a launcher of training processes sets this variable, by which vLLM would look for their process group."""
    return name in LAUNCHER or name.startswith(LAUNCHER_PREFIXES)
