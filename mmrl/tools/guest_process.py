"""Processes of other Pythons that serve an environment to this program."""

from __future__ import annotations

import atexit
import os
import select
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

END_S = 5.0
"""Seconds that a process has to end after its stdin was closed."""


class GuestProcess:
    """A process that is written to and read from line by line; it ends with this program.

    It has modules of the current folder, and the programs beside its own first. It has to end when its stdin closes.
    Every subclass has its own running processes, found by the arguments of its constructor.

    Args:
        command: that starts it; the first word is a program, usually a Python.
    """

    running: ClassVar[dict[tuple[Any, ...], Any]]
    _starts: ClassVar[threading.Lock]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.running, cls._starts = {}, threading.Lock()

    def __init__(self, command: Sequence[str]):
        program = Path(shutil.which(command[0]) or command[0]).absolute()  # for children that start in other folders
        variables = {
            **os.environ,
            "PATH": _join(str(program.parent), os.environ.get("PATH", "")),
            "PYTHONPATH": _join(os.getcwd(), os.environ.get("PYTHONPATH", "")),
        }
        self._process: Any = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables, start_new_session=True
        )
        atexit.register(self.close)

    @classmethod
    def find(cls, *arguments: Any) -> Self:
        """Return the running process with these arguments of the constructor; one that has ended is started again."""
        with cls._starts:
            if arguments not in cls.running or cls.running[arguments].is_over:
                cls.running[arguments] = cls(*arguments)
            return cls.running[arguments]

    @property
    def status(self) -> int | None:
        """Exit status; None while it runs."""
        return self._process.poll()

    @property
    def is_over(self) -> bool:
        """Whether the process has ended."""
        return self.status is not None

    def write_line(self, line: str) -> None:
        """Write a line to its stdin.

        Raises:
            OSError: it has ended.
        """
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def read_line(self, timeout_s: float) -> str:
        """Read the first line of its stdout, without blanks around it; "" if none comes in time or it ends."""
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        return self._process.stdout.readline().strip() if ready else ""

    def lines(self) -> Iterator[str]:
        """Read the lines of its stdout until it ends."""
        yield from self._process.stdout

    def close(self) -> None:
        """End the process: its stdin closes, and after some seconds it is killed."""
        try:
            self._process.stdin.close()
            self._process.wait(END_S)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()


def _join(first: str, paths: str) -> str:
    return os.pathsep.join(filter(None, [first, paths]))
