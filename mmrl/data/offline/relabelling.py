"""Rewards that a recording did not have: who gives them, and the recording with them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from mmrl.datasets.base import Dataset, Statistics
from mmrl.datasets.offline_episodes import OfflineEpisode


class Relabelling(ABC):
    """Base class of what gives every transition of a recording its reward, before the replay buffer is filled."""

    @abstractmethod
    def relabel(
        self, dataset: Dataset, seed: int, folder: Path, device: torch.device
    ) -> tuple[Dataset, dict[str, float]]:
        """Return the recording with its rewards, and metrics of the first iteration by name. Collective.

        Args:
            dataset: the recording, with or without rewards.
            seed: of the run.
            folder: of the run, where files may be left.
            device: on which networks are trained.
        """


class RewardedDataset(Dataset):
    """A recording with other rewards.

    Args:
        dataset: the recording.
        rewards: of each episode, float32 [T].
    """

    def __init__(self, dataset: Dataset, rewards: Sequence[np.ndarray]):
        self.dataset, self.rewards = dataset, rewards
        self.path, self.format, self.fps = dataset.path, dataset.format, dataset.fps
        self.features, self.contract = dataset.features, dataset.contract

    def __len__(self) -> int:
        return len(self.dataset)

    def read(self, number: int) -> OfflineEpisode:
        return replace(self.dataset.read(number), rewards=self.rewards[number])

    def lengths(self) -> list[int]:
        return self.dataset.lengths()

    def statistics(self) -> dict[str, Statistics]:
        return self.dataset.statistics()

    def close(self) -> None:
        self.dataset.close()
