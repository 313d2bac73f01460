"""Success rate of held-out episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

from mmrl.core.groups import group_episodes
from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_binary_score
from mmrl.evaluation.statistics.intervals import wilson
from mmrl.evaluation.statistics.power import quantile


@dataclass(frozen=True)
class SuccessRate(Evaluator):
    """Success rate of finished episodes with its Wilson interval: mean, lower, upper, n, errors.

    An episode succeeds if its score is 1.

    Samples of one prompt are not independent, so the interval counts prompts, not episodes; with one sample per
    prompt, as in greedy evaluation, both are the same. `n` counts finished episodes, `errors` those left out.

    Args:
        score_name: name of a score of 0 or 1 that the task gives.
        level: confidence level of the interval.
    """

    score_name: str = "exact"
    level: float = 0.95

    def __post_init__(self) -> None:
        quantile(self.level)  # refuses an invalid level

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = drop_errors(episodes)
        values = [get_binary_score(episode, self.score_name) for episode in valid]
        mean = sum(values) / len(values) if values else nan
        prompts = len(group_episodes(valid))
        lower, upper = wilson(mean * prompts if values else 0, prompts, self.level)
        return {
            "mean": mean,
            "lower": lower,
            "upper": upper,
            "n": float(len(valid)),
            "errors": count_errors(episodes),
        }
