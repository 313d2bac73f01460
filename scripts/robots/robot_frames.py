"""Store what docs/robots.md shows of a run: its protocol hash, and frames of the first held-out states."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import mmrl

SHOWN = 3
"""Initial states."""
FRAMES = 6
"""Frames of an episode."""
SIZE = 112
"""Pixels a side of a frame."""


def store_run(recipe: str, run: Path, folder: Path) -> None:
    """Write the protocol of an evaluated run to protocols.json and frames of its episodes to <recipe>.png.

    Args:
        recipe: of the run.
        run: folder with protocol.json, which `mmrl evaluate RUN` wrote.
        folder: where the two files go.
    """
    stored: dict[str, Any] = json.loads((run / "protocol.json").read_text())
    entries, path = stored["entries"], folder / "protocols.json"
    protocols = json.loads(path.read_text()) if path.exists() else {}
    protocols[recipe] = {
        "hash": stored["hash"],
        "states": entries["problems"]["count"],
        "decodes": sorted(entries["decodes"]),
        "max_steps": entries["suite"]["max_steps"],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(protocols, indent=2) + "\n")
    rows = [row for slot in range(SHOWN) for row in play_state(run, entries["problems"]["offset"] + slot)]
    strip = Image.fromarray(np.concatenate([join_frames(row) for row in rows]))
    strip.quantize(64).save(folder / f"{recipe}.png", optimize=True)


def play_state(run: Path, index: int) -> list[list[np.ndarray]]:
    """Play a held-out state with the start and with the last checkpoint; frames uint8 [S, S, 3] of each decision."""
    played = []
    for checkpoint in ("start", "last"):
        policy = mmrl.load_policy(run, checkpoint=checkpoint, decode="mean")
        env, seed = policy.make_env(), policy.task.on("held_out")[index].info["seed"]
        observation, _ = env.reset(seed=seed)
        frames, over = [env.render(SIZE)], False
        while not over:
            observation, _, terminated, truncated, _ = env.step(policy.act(observation))
            frames.append(env.render(SIZE))
            over = terminated or truncated
        env.close()
        played.append(frames)
    return played


def join_frames(frames: Sequence[np.ndarray], count: int = FRAMES) -> np.ndarray:
    """Join frames from first to last at equal distances side by side, uint8 [S, count * S, 3]."""
    return np.concatenate([frames[i] for i in np.linspace(0, len(frames) - 1, count).round().astype(int)], axis=1)
