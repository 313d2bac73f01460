"""Run a short program of ours on data of others in a process with limits of time and memory."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

_LIMITS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
"""


def find_failure(program: str, given: Any, seconds: int = 5, memory_mb: int = 512) -> str | None:
    """Run a program and return what stopped it: its message, its signal or its limit; None for a normal end.

    Args:
        program: Python without imports of mmrl; it reads one JSON value from its standard input and may exit with a
            message (`sys.exit("...")`).
        given: the value.
        seconds: of processor time; of real time six times as many.
        memory_mb: address space.
    """
    limits = _LIMITS.replace("MEMORY", str(memory_mb * 2**20)).replace("SECONDS", str(seconds))
    command = [sys.executable, "-I", "-c", limits + program]
    try:
        ended = subprocess.run(
            command, input=json.dumps(given).encode(), capture_output=True, timeout=6 * seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it takes longer than {seconds} seconds"
    if ended.returncode == 0:
        return None
    if ended.returncode < 0:
        if -ended.returncode in (signal.SIGXCPU, signal.SIGKILL):
            return f"it takes longer than {seconds} seconds"
        return f"it ends the process ({signal.Signals(-ended.returncode).name})"
    lines = ended.stderr.decode(errors="replace").strip().splitlines() or ["it fails"]
    if "MemoryError" in lines[-1]:
        return f"it needs more than {memory_mb} MB"
    return "".join(c if c.isprintable() else "?" for c in lines[-1])[:300]
