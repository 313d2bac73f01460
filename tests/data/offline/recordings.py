"""Recorded transitions in D4RL's shape, written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np


def arrays(lengths: list[int], ends: list[str], dims: int = 3, actions: int = 2, seed: int = 0) -> dict[str, Any]:
    """Flat arrays of episodes; `ends` are "done", "time" or "cut". Row i has the observation (i, noise...)."""
    rng, rows = np.random.default_rng(seed), sum(lengths)
    last = np.cumsum(lengths) - 1
    flags = {kind: np.zeros(rows, bool) for kind in ("done", "time", "cut")}
    for row, kind in zip(last, ends, strict=True):
        flags[kind][row] = True
    observations = rng.normal(size=(rows, dims)).astype(np.float32)
    observations[:, 0] = np.arange(rows)
    return {
        "observations": observations,
        "actions": rng.uniform(-1, 1, (rows, actions)).astype(np.float32),
        "rewards": np.arange(rows, dtype=np.float32) / 4,
        "terminals": flags["done"],
        "timeouts": flags["time"],
    }


def write(path: Path, **columns: Any) -> Path:
    """Write the arrays that are not None."""
    with h5py.File(path, "w") as file:
        for name, rows in columns.items():
            if rows is not None:
                file[name] = rows
    return path
