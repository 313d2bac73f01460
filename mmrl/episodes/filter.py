"""Leaving out what nothing can be learnt from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.episodes.base import EpisodeTransform
from mmrl.types import Context, Episode


@dataclass(frozen=True)
class DropUniform(EpisodeTransform):
    """Keeps the groups whose episodes did not all earn the same: the others have no advantage to learn from.

    A group of one is uniform, unless it is a demonstration, which stays.

    Args:
        field: "reward", or the name of a score.
        tolerance: largest difference that counts as the same, in units of the field.
    """

    field: str = "reward"
    tolerance: float = 1e-6

    min_group_size = 2

    def __post_init__(self) -> None:
        if self.tolerance < 0:
            raise ValueError(f"drop_uniform.tolerance must be >= 0, got {self.tolerance}")

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [
            episode
            for group in grouped(episodes).values()
            if group[0].source == "demo" or not uniform(group, self.field, self.tolerance)
            for episode in group
        ]


@dataclass(frozen=True)
class KeepSolved(EpisodeTransform):
    """Keeps the episodes that earned enough: cloning what succeeded, for example.

    Args:
        field: "reward", or the name of a score.
        least: that is enough.
    """

    field: str = "reward"
    least: float = 1.0

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [episode for episode in episodes if earned(episode, self.field) >= self.least]


@dataclass(frozen=True)
class KeepRates(EpisodeTransform):
    """Keeps the groups whose mean lies in [low, high]: neither too easy nor too hard.

    Args:
        low: least mean.
        high: largest mean.
        field: "reward", or the name of a score.
    """

    low: float = 0.2
    high: float = 0.8
    field: str = "reward"

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"keep_rates: low must be <= high, got {self.low} and {self.high}")

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        groups = grouped(episodes).values()
        means = [sum(earned(episode, self.field) for episode in group) / len(group) for group in groups]
        return [episode for group, mean in zip(groups, means) if self.low <= mean <= self.high for episode in group]


def grouped(episodes: Sequence[Episode]) -> dict[int, list[Episode]]:
    """Episodes by group, in order of first appearance."""
    out: dict[int, list[Episode]] = {}
    for episode in episodes:
        out.setdefault(episode.group, []).append(episode)
    return out


def uniform(group: Sequence[Episode], field: str, tolerance: float) -> bool:
    """Whether all episodes of the group earned the same."""
    all_earned = [earned(episode, field) for episode in group]
    return max(all_earned) - min(all_earned) <= tolerance


def earned(episode: Episode, field: str) -> float:
    """The reward of an episode, or one of its scores."""
    if field == "reward":
        return episode.reward
    if field not in episode.scores:
        raise KeyError(
            f"field {field!r} is neither 'reward' nor a score of {episode.prompt.key!r}, "
            f"which has {sorted(episode.scores)}; set episodes.*.field"
        )
    return episode.scores[field]
