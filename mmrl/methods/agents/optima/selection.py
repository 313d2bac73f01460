"""Optima: the dialogues that iterative supervised fine-tuning learns."""

from __future__ import annotations

from dataclasses import dataclass

from mmrl.core.errors import check_fraction
from mmrl.core.groups import group_episodes
from mmrl.core.types import Context, Episode
from mmrl.transforms.base import EpisodeTransform


@dataclass(frozen=True)
class BestDialogues(EpisodeTransform):
    """Keeps the dialogue of highest reward of each problem; of these the best share, if they reach a threshold.

    Of equals the first one counts. The share is of the problems of this process, and the threshold is applied after
    it. Source: Optima, 2024, algorithm 1 (iSFT), arXiv:2410.08115; released code: dataloader/dataloader.py.

    Args:
        min_reward: smallest reward of a dialogue that is learned.
        share: of the problems, those with the best dialogues; int(share * problems) of them.
    """

    min_reward: float = 0.6
    share: float = 0.7

    def __post_init__(self) -> None:
        check_fraction("best_dialogues", share=self.share)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        best = [max(group, key=lambda e: e.reward) for group in group_episodes(episodes).values()]
        best.sort(key=lambda episode: -episode.reward)
        return [e for e in best[: int(self.share * len(best) + 1e-9)] if e.reward >= self.min_reward]
