"""What a program may use, and how it ended."""

from __future__ import annotations

from dataclasses import asdict, dataclass


class ExecutorDown(RuntimeError):
    """Programs cannot be run: it says nothing about any of them."""


@dataclass(frozen=True)
class Limits:
    """What a program may use.

    Args:
        seconds: from its start to its end.
        cpu_seconds: of computing, whole ones.
        memory_mb: of address space.
        files_mb: of all files in its scratch folder together, whole ones.
        files: files and folders in its scratch folder.
        output: bytes that it may print.
    """

    seconds: float = 5.0
    cpu_seconds: int = 2
    memory_mb: int = 256
    files_mb: int = 4
    files: int = 256
    output: int = 10_000

    def __post_init__(self) -> None:
        low = [name for name, value in asdict(self).items() if not 0 < value < 1 << 40]
        if low:
            raise ValueError(f"limits.{low[0]} must be > 0 and below 2**40, got {getattr(self, low[0])}")


@dataclass(frozen=True)
class Ran:
    """How a program ended, as the process that watched it says.

    `outcome` is "ok" (its process exited with status 0: the program ran to its end, or chose to exit earlier),
    "raised" (another status: an exception, its name in `reason`), "out_of_memory" (a MemoryError), "timed_out" (it
    reached a limit of time), "too_long" (it printed more than it may), "out_of_disk" (its scratch folder grew beyond
    its limits), "not_text" (what it printed is not UTF-8), or "killed" (by a signal, its number in `reason`).

    `output` and `reason` are the program's own words. A verifier compares `output` with what it knows; that a program
    ended with "ok" says nothing about code that was appended to it, which the program can skip or change.
    """

    outcome: str
    output: str
    reason: str
