"""Check in a separate process whether a GL back end renders, because a broken one can abort."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 60


@functools.cache
def probe(backend: str) -> str | None:
    """None if "egl" or "osmesa" renders an image on this machine, else the reason in one line."""
    if backend not in ("egl", "osmesa"):
        raise ValueError(f"only egl and osmesa can be probed, got {backend!r}")
    # our own context is made from the named back end; MUJOCO_GL would only make `import mujoco` itself fail
    environment = {k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}
    environment["PYTHONPATH"] = os.pathsep.join([str(_ROOT), environment.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", f"from sims.render.gl import self_test; self_test({backend!r})"]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return f"no image within {_SECONDS} seconds"
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"exit status {done.returncode}"
