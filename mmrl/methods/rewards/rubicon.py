"""Rubicon: rewards from rubrics with vetoes and saturation, and prompts from the middle of the scores.

Reinforcement Learning with Rubric Anchors, 2025, arXiv:2508.12790.

- weighted mean of criteria, saturation, interactions, shaping and vetoes: `mmrl.rewards.compose.Composition`
- criteria that a judge grades: `mmrl.rewards.judges.rubric.Rubric`
- prompts that are neither too easy nor too noisy: `KeepQuantileBand`
- two stages, checkable criteria first: schedules in the place of the weights
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_fraction
from mmrl.core.groups import get_score, group_episodes
from mmrl.core.types import Context, Episode
from mmrl.transforms.base import EpisodeTransform


@dataclass(frozen=True)
class KeepQuantileBand(EpisodeTransform):
    """Keeps the groups whose mean reward lies in a band of quantiles of the iteration's groups, of all processes.

    Both ends stay, so that equal means are treated alike. Source: Reinforcement Learning with Rubric Anchors, 2025,
    section on data selection, arXiv:2508.12790, which states no numbers.

    Args:
        lower: quantile below which a prompt is too hard or its score too noisy.
        upper: quantile above which it is too easy.
        score_name: "reward", or the name of a score.
    """

    lower: float = 0.2
    upper: float = 0.8
    score_name: str = "reward"

    def __post_init__(self) -> None:
        check_fraction("keep_quantile_band", lower=self.lower, upper=self.upper)
        if self.lower >= self.upper:
            raise ValueError(f"keep_quantile_band: lower must be below upper, got {self.lower} and {self.upper}")

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        groups = group_episodes(episodes)
        means = {key: sum(get_score(e, self.score_name) for e in g) / len(g) for key, g in groups.items()}
        everyone = ctx.collector.gather(list(means.values()))
        if not everyone:
            return []
        low, high = np.quantile(everyone, [self.lower, self.upper])
        return [episode for key, group in groups.items() if low <= means[key] <= high for episode in group]
