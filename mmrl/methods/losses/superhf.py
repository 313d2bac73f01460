"""SuperHF: iterative fine-tuning on the best of several samples, with a KL penalty to the initial policy.

SuperHF: Supervised Iterative Learning from Human Feedback, 2023, arXiv:2310.16763.

- the best completions of each prompt: `KeepBest`
- loss: `NegativeLogLikelihood` plus `GKDLoss(beta=1, teacher="reference")`, the exact KL(policy || start) of each token
"""

from __future__ import annotations

from dataclasses import dataclass

from mmrl.core.errors import check_at_least
from mmrl.core.groups import group_episodes
from mmrl.core.types import Context, Episode
from mmrl.transforms.base import EpisodeTransform


@dataclass(frozen=True)
class KeepBest(EpisodeTransform):
    """Best of n: keeps the episodes with the highest rewards of each group, the first ones among equal rewards.

    Args:
        count: of each group.
    """

    count: int = 1

    def __post_init__(self) -> None:
        check_at_least(1, "keep_best", count=self.count)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        ordered = (sorted(group, key=lambda e: -e.reward) for group in group_episodes(episodes).values())
        return [episode for group in ordered for episode in group[: self.count]]
