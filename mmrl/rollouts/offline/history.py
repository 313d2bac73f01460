"""Rollout that replays the episodes of a dataset with a history of observations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mmrl.core.errors import check_at_least
from mmrl.core.types import Context, Episode, Prompt
from mmrl.datasets.base import Dataset
from mmrl.rollouts.offline.episodes import OfflineRollout


class HistoryRollout(OfflineRollout):
    """Replay as `OfflineRollout` does; every decision shows the observations of the last control steps.

    Args:
        history: observations, the oldest first, as a first axis of every image and vector; the first one is repeated
            at the beginning of an episode.
        options: as of `OfflineRollout`.
    """

    def __init__(self, history: int = 2, **options: Any):
        super().__init__(**options)
        check_at_least(1, "rollout", history=history)
        self.history = history

    def _episode(self, dataset: Dataset, slot: int, prompt: Prompt, ctx: Context) -> Episode:
        return super()._episode(_HistoryDataset(dataset, self.history), slot, prompt, ctx)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _HistoryDataset:
    """A dataset whose observations have a history."""

    dataset: Dataset
    history: int

    def __getitem__(self, number: int) -> Any:
        episode = self.dataset[number]
        if self.history == 1:
            return episode
        observations = {name: _History(rows, self.history) for name, rows in episode.observations.items()}
        return replace(episode, observations=observations)


@dataclass(frozen=True)
class _History:
    """Rows [T, ...] of an episode; row t is the array [frames, ...] of rows t - frames + 1, ..., t."""

    rows: Any
    frames: int

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, step: int) -> np.ndarray:
        return np.stack([self.rows[max(step - back, 0)] for back in reversed(range(self.frames))])
