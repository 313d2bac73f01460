"""Scores and rewards are written into episodes here, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.episodes.filter import grouped
from mmrl.rewards.base import Reward
from mmrl.types import Episode, Task


def score(episodes: Sequence[Episode], task: Task, reward: Reward) -> None:
    """Write scores and the composed reward into finished episodes; errors keep neither."""
    finished = [episode for episode in episodes if episode.ended != "error"]
    for episode, found in zip(finished, task.scores(finished)):
        episode.scores = found
    for group in grouped(finished).values():
        for episode, number in zip(group, reward(group)):
            episode.reward = float(number)
