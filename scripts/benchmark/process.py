"""Memory, threads and versions of a benchmark process. Standard library alone, the same on both sides."""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any


def peak_rss_gib() -> float:
    """Peak resident memory of this process so far, GiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def threads() -> int | None:
    """Value of OMP_NUM_THREADS, if set."""
    return int(os.environ.get("OMP_NUM_THREADS", 0)) or None


def versions(*packages: str) -> dict[str, str]:
    """Versions of Python and of the packages that are installed."""
    result = {"python": platform.python_version()}
    for package in packages:
        try:
            result[package] = version(package)
        except PackageNotFoundError:
            continue
    return result


class Steps:
    """Wall-clock and CPU seconds of steps, each from the end of the previous one."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.cpu: list[float] = []

    def begin(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def end(self) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        self.seconds.append(wall - self._wall)
        self.cpu.append(cpu - self._cpu)
        self._wall, self._cpu = wall, cpu


def summary(steps: Steps, tokens: list[int], lengths: list[float], **more: Any) -> dict[str, Any]:
    """Medians over the steps after the first, which is a warm-up.

    Args:
        steps: at least two.
        tokens: sampled in each step.
        lengths: mean tokens of a completion in each step.
    """
    step = median(steps.seconds[1:])
    return {
        "seconds_per_step": step,
        "cpu_seconds_per_step": median(steps.cpu[1:]),
        "tokens_per_second": median(tokens[1:]) / step,
        "mean_length": sum(lengths[1:]) / len(lengths[1:]),
        "step_seconds": [round(s, 4) for s in steps.seconds],
        "peak_rss_gib": peak_rss_gib(),
        "threads": threads(),
        **more,
    }


def report(path: str | Path, result: dict[str, Any]) -> None:
    Path(path).write_text(json.dumps(result))
