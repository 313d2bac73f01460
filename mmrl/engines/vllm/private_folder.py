"""Folder of this run for weights that vLLM reads."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")


def make_private_folder() -> Path:
    """Make an empty folder in shared memory, or among the temporary files where the system has none."""
    usable = SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK)
    return Path(tempfile.mkdtemp(prefix="mmrl-vllm-", dir=SHARED_MEMORY if usable else None))
