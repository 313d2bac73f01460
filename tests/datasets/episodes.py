"""Small episodes to write and read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.datasets.lerobot.writer import LeRobotWriter
from mmrl.datasets.offline_episodes import OfflineEpisode

CONTRACT = {"sim": "toy", "chunk": 3, "colours": ["red", "blue"]}


def episode(steps: int, seed: int, success: bool | None = True, **given: Any) -> OfflineEpisode:
    """Smooth images 32 x 32 that brighten with time, vectors of 5 and actions of 3."""
    rng, x = np.random.default_rng(seed), np.linspace(0, 1, 32)
    still = np.stack([200 * np.outer(x, x), 150 * np.outer(x, np.ones(32)), 100 * np.outer(np.ones(32), 1 - x)], -1)
    fields: dict[str, Any] = dict(
        actions=rng.uniform(-1, 1, (steps, 3)).astype(np.float32),
        observations={
            "image": np.stack([still + 2 * t for t in range(steps)]).astype(np.uint8),
            "proprio": rng.normal(size=(steps, 5)).astype(np.float32),
        },
        instruction=f"reach the {['red', 'blue'][seed % 2]} cube",
        rewards=np.eye(1, steps, steps - 1, dtype=np.float32)[0] * bool(success),
        terminated=success is not False,
        truncated=success is False,
        success=success,
        seed=seed,
    )
    return OfflineEpisode(**(fields | given))


def write(folder: Path, episodes: Sequence[OfflineEpisode], video: bool = False, fps: float = 20) -> Path:
    """A LeRobotDataset of these episodes."""
    writer = LeRobotWriter(folder, fps, video=video, contract=CONTRACT)
    for one in episodes:
        writer.add(one)
    writer.close()
    return folder
