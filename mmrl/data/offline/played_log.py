"""A log that a simulator's script plays before training: transitions without a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.types import Task
from mmrl.datasets.base import Dataset, Statistics
from mmrl.datasets.hdf5.dataset import infer_feature
from mmrl.datasets.offline_episodes import OfflineEpisode
from mmrl.datasets.recording import record
from mmrl.datasets.statistics import compute_statistics
from mmrl.rollouts.base import simulator_of


class EpisodeDataset(Dataset):
    """Dataset of episodes in memory.

    Args:
        episodes: at least one.
        name: of the dataset, for messages.
    """

    format = "memory"
    fps = None
    contract = None

    def __init__(self, episodes: list[OfflineEpisode], name: str):
        self.path, self.episodes = Path(name), episodes
        self.features = {each: infer_feature(rows) for each, rows in episodes[0].observations.items()}
        self.features["action"] = infer_feature(episodes[0].actions)

    def __len__(self) -> int:
        return len(self.episodes)

    def read(self, number: int) -> OfflineEpisode:
        return self.episodes[number]

    def statistics(self) -> dict[str, Statistics]:
        return compute_statistics(self)


@dataclass(frozen=True)
class PlayedLog:
    """Log of the script `behavior(seeds, noise)` of the task's simulator, one episode of each training state.

    Args:
        num_episodes: that are played, from the first training states on.
        noise: standard deviation of the noise on the actions, in units of the action.
    """

    num_episodes: int = 200
    noise: float = 0.3

    def __post_init__(self) -> None:
        check_at_least(1, "data.log", num_episodes=self.num_episodes)
        check_at_least(0, "data.log", noise=self.noise)

    def play(self, task: Task, seed: int) -> EpisodeDataset:
        """Play the episodes.

        Args:
            task: whose simulator plays, from its training states.
            seed: of the run: the number of the first training state, in steps of `num_episodes`.

        Raises:
            ConfigError: the simulator has no such script.
            ValueError: every episode broke down.
        """
        sim: Any = simulator_of(task, "data.log")
        if not hasattr(sim, "behavior"):
            raise ConfigError(
                f"data.log: sim {sim.name!r} has no method behavior(seeds, noise), the script that plays a log; name a "
                "recording with data.path=FILE, or set data.log=null"
            )
        first = seed * self.num_episodes
        seeds = [task[(first + i) % len(task)].info["seed"] for i in range(self.num_episodes)]
        batches = record(sim.stepwise(), seeds, lambda some: sim.behavior(some, self.noise))
        episodes = [episode for batch in batches for episode in batch.episodes]
        if not episodes:
            raise ValueError(f"data.log: none of {self.num_episodes} episodes of {sim.name!r} could be played")
        return EpisodeDataset(episodes, f"the log of {sim.name}")
