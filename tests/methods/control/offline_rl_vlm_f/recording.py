"""A recording of pictures whose brightness says how good they are."""

from __future__ import annotations

import numpy as np

from mmrl.data.offline.played_log import EpisodeDataset
from mmrl.datasets.offline_episodes import OfflineEpisode


def bright_episodes(count: int = 6, steps: int = 5, rewards: bool = True) -> EpisodeDataset:
    """Episodes whose picture t has one brightness drawn at random; the reward of a transition is that of the next."""
    rng = np.random.default_rng(0)
    episodes = []
    for number in range(count):
        levels = rng.integers(0, 250, steps + 1).astype(np.uint8)
        pictures = np.broadcast_to(levels[:, None, None, None], (steps + 1, 17, 17, 3)).copy()
        episodes.append(
            OfflineEpisode(
                actions=rng.uniform(-1, 1, (steps, 2)).astype(np.float32),
                observations={"image": pictures[:-1], "state": levels[:-1, None].astype(np.float32)},
                instruction="a bright room",
                rewards=levels[1:].astype(np.float32) if rewards else None,
                truncated=True,
                final={"image": pictures[-1], "state": levels[-1:].astype(np.float32)},
                where=f"episode {number}",
            )
        )
    return EpisodeDataset(episodes, "bright rooms")


def prefer_bright(goal: str, first: np.ndarray, second: np.ndarray) -> int:
    """The brighter picture, if the goal asks for it."""
    assert goal == "a bright room" and first.dtype == np.uint8
    return int(second.mean() > first.mean())


def prefer_nothing(goal: str, first: np.ndarray, second: np.ndarray) -> int:
    return -1


def prefer_badly(goal: str, first: np.ndarray, second: np.ndarray) -> int:
    return 7
