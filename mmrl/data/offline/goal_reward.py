"""Rewards of a fixed goal for a recording that has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from mmrl.core.errors import ConfigError, check_positive
from mmrl.data.offline.relabelling import Relabelling, RewardedDataset
from mmrl.datasets.base import Dataset
from mmrl.datasets.offline_episodes import OfflineEpisode


class GoalReward(Relabelling):
    """Reward 0 of a transition after which the goal is reached, and -1 of every other.

    The goal is reached where the Euclidean distance of the observed vector to it is at most `tolerance`. Episodes go on
    behind it. Rewards are computed as episodes are read, so that the recording may be larger than the memory.

    Args:
        goal: values of the dimensions `dims` of the observation.
        tolerance: greatest distance, in the units of the observation.
        dims: numbers of the dimensions; None for the first ones, as many as the goal has.
        observation: name of the vector.
    """

    def __init__(
        self,
        goal: Sequence[float],
        tolerance: float = 0.5,
        dims: Sequence[int] | None = None,
        observation: str = "state",
    ):
        check_positive("data.relabelling", tolerance=tolerance)
        self.goal, self.tolerance, self.observation = np.asarray(goal, np.float32), tolerance, observation
        self.dims = list(range(len(goal)) if dims is None else dims)
        if not len(goal) or len(self.dims) != len(goal) or min(self.dims) < 0:
            raise ConfigError(
                f"data.relabelling: goal has {len(goal)} values for the dimensions {self.dims}; give as many dims as "
                "values, at least one, from 0 on"
            )

    def relabel(
        self, dataset: Dataset, seed: int, folder: Path, device: torch.device
    ) -> tuple[Dataset, dict[str, float]]:
        shape = dataset.features[self.observation].shape if self.observation in dataset.features else None
        if shape is None or len(shape) != 1 or shape[0] <= max(self.dims):
            raise ConfigError(
                f"data.relabelling: {dataset.path} has no vector {self.observation!r} with the dimensions {self.dims}; "
                f"it has {', '.join(f'{name} {list(one.shape)}' for name, one in dataset.features.items())}"
            )
        return GoalDataset(dataset, self), {}

    def compute(self, episode: OfflineEpisode) -> np.ndarray:
        """Rewards [T] of an episode; where no final observation was recorded, the last row's stands in for it."""
        rows = np.asarray(episode.observations[self.observation])
        last = rows[-1] if episode.final is None else episode.final[self.observation]
        distance = np.linalg.norm(np.concatenate([rows[1:], last[None]])[:, self.dims] - self.goal, axis=1)
        return np.where(distance <= self.tolerance, 0, -1).astype(np.float32)


class GoalDataset(RewardedDataset):
    """A recording with the rewards of a goal.

    Args:
        dataset: the recording.
        reward: of the goal.
    """

    def __init__(self, dataset: Dataset, reward: GoalReward):
        super().__init__(dataset, [])
        self.reward = reward

    def read(self, number: int) -> OfflineEpisode:
        episode = self.dataset.read(number)
        return replace(episode, rewards=self.reward.compute(episode))
