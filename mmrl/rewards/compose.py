"""Weighted sum of named scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.rewards.base import Reward
from mmrl.types import Episode


@dataclass(frozen=True)
class WeightedSum(Reward):
    """Reward of an episode: sum_k weights_k * scores_k.

    Args:
        weights: by name of the score. Empty where the environment pays every decision itself: 0 for all episodes.
    """

    weights: dict[str, float]

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return [sum((w * _score(episode, name) for name, w in self.weights.items()), 0.0) for episode in group]


def _score(episode: Episode, name: str) -> float:
    if name not in episode.scores:
        raise KeyError(
            f"data.reward.weights names {name!r}, but {episode.prompt.key!r} was scored with {sorted(episode.scores)}"
        )
    value = episode.scores[name]
    if not math.isfinite(value):
        raise ValueError(f"score {name!r} of {episode.prompt.key!r} is {value}")
    return value
