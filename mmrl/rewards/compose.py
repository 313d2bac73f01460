"""Weighted sum of named scores, and the same with DAPO's overlong penalty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.rewards.base import Reward
from mmrl.rewards.shaping import overlong_penalty
from mmrl.types import Episode


@dataclass(frozen=True)
class WeightedSum(Reward):
    """Reward of an episode: sum_k weights_k * scores_k.

    Args:
        weights: by name of the score. Empty where the environment pays every decision itself: 0 for all episodes.
    """

    weights: dict[str, float]

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return [sum((w * read_score(episode, name) for name, w in self.weights.items()), 0.0) for episode in group]


@dataclass(frozen=True)
class OverlongPenalty(WeightedSum):
    """Reward of an episode: sum_k weights_k * scores_k plus DAPO's soft overlong penalty, the score `overlong`.

    The penalty is 0 up to (1 - buffer_fraction) max_tokens tokens and falls linearly to -1 at max_tokens.
    Source: DAPO, 2025, equation 13, arXiv:2503.14476, with a buffer of 4,096 of 20,480 tokens.

    Args:
        weights: by name of the score, for the other scores.
        max_tokens: longest completion, usually sampling.max_tokens.
        buffer_fraction: share of max_tokens in which the penalty rises.
    """

    max_tokens: int = 20_480
    buffer_fraction: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.buffer_fraction <= 1:
            raise ValueError(f"reward.buffer_fraction must be in (0, 1], got {self.buffer_fraction}")

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        buffer = self.buffer_fraction * self.max_tokens
        return [{"overlong": overlong_penalty(episode.tokens, self.max_tokens, buffer)} for episode in episodes]

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return [reward + episode.scores["overlong"] for reward, episode in zip(super().__call__(group), group)]


def read_score(episode: Episode, name: str, option: str = "weights") -> float:
    """Return a finite score of an episode; a missing one is refused in the name of the option."""
    if name not in episode.scores:
        raise KeyError(
            f"data.reward.{option} names {name!r}, but {episode.prompt.key!r} was scored with {sorted(episode.scores)}"
        )
    value = episode.scores[name]
    if not math.isfinite(value):
        raise ValueError(f"score {name!r} of {episode.prompt.key!r} is {value}")
    return value
