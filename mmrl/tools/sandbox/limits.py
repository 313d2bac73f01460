"""Resource limits and results of sandboxed programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass


class ExecutorDown(RuntimeError):
    """The sandbox cannot run programs; the error does not concern a program."""


@dataclass(frozen=True)
class Limits:
    """Resource limits of a program.

    Args:
        seconds: wall-clock time.
        cpu_seconds: CPU time, a whole number.
        memory_mb: address space.
        files_mb: total size of its scratch folder, a whole number.
        files: number of files and folders in its scratch folder.
        output: bytes of its output.
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
    """Result of a program, as reported by its supervisor process.

    `outcome` is "ok" (its process exited with status 0: the program ran to its end, or chose to exit earlier),
    "raised" (another status: an exception, its name in `reason`), "out_of_memory" (a MemoryError), "timed_out" (it
    reached a limit of time), "too_long" (it printed more than it may), "out_of_disk" (its scratch folder grew beyond
    its limits), "not_text" (what it printed is not UTF-8), or "killed" (by a signal, its number in `reason`).

    The program controls `output` and `reason`. A verifier must compare `output` with the expected one: "ok" does not
    prove that code appended to the program ran, which the program can skip or change.
    """

    outcome: str
    output: str
    reason: str
