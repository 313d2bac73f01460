"""Filters of episodes: zero-variance groups, pass rates and successes."""

from __future__ import annotations

from dataclasses import dataclass

from mmrl.core.errors import check_at_least
from mmrl.core.groups import get_score, group_episodes, has_zero_variance
from mmrl.core.types import Context, Episode
from mmrl.transforms.base import EpisodeTransform


@dataclass(frozen=True)
class DropZeroVariance(EpisodeTransform):
    """Drops groups whose rewards are all equal: their advantages are 0 (zero-variance filter).

    A group of one has no variance, unless it is a demonstration: that is not sampled, and it stays.

    Args:
        score_name: "reward", or the name of a score.
        tolerance: largest difference of rewards that counts as equal, in units of the score.
    """

    score_name: str = "reward"
    tolerance: float = 1e-6

    min_group_size = 2

    def __post_init__(self) -> None:
        check_at_least(0, "drop_zero_variance", tolerance=self.tolerance)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [
            episode
            for group in group_episodes(episodes).values()
            if group[0].source == "demo" or not has_zero_variance(group, self.score_name, self.tolerance)
            for episode in group
        ]


@dataclass(frozen=True)
class KeepSuccesses(EpisodeTransform):
    """Keeps the episodes whose reward reaches a threshold, as in rejection-sampling fine-tuning.

    Args:
        score_name: "reward", or the name of a score.
        success_threshold: smallest reward of a success.
    """

    score_name: str = "reward"
    success_threshold: float = 1.0

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [episode for episode in episodes if get_score(episode, self.score_name) >= self.success_threshold]


@dataclass(frozen=True)
class KeepPassRates(EpisodeTransform):
    """Keeps the groups whose mean reward lies in [min_rate, max_rate]: drops prompts that are too easy or too hard.

    Args:
        min_rate: smallest mean.
        max_rate: largest mean.
        score_name: "reward", or the name of a score.
    """

    min_rate: float = 0.2
    max_rate: float = 0.8
    score_name: str = "reward"

    def __post_init__(self) -> None:
        if self.min_rate > self.max_rate:
            raise ValueError(f"keep_pass_rates: min_rate must be <= max_rate, got {self.min_rate} and {self.max_rate}")

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        groups = group_episodes(episodes).values()
        means = [sum(get_score(episode, self.score_name) for episode in group) / len(group) for group in groups]
        return [
            episode for group, mean in zip(groups, means) if self.min_rate <= mean <= self.max_rate for episode in group
        ]
