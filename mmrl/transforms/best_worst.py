"""Preference pairs from samples: the best and the worst completion of each group."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import torch

from mmrl.core.groups import group_episodes, has_zero_variance
from mmrl.core.types import Context, Episode, Turn
from mmrl.transforms.base import EpisodeTransform

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BestWorst(EpisodeTransform):
    """Keeps of each group the episode with the highest reward, preferred, and the one with the lowest, not preferred.

    Groups whose rewards are all equal are left out. Of equals the first episode counts.

    Args:
        length_penalty: subtracted from the reward for every choice of the policy.
    """

    length_penalty: float = 0.0

    def writes(self) -> frozenset[str]:
        return frozenset({"preference"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        out: list[Episode] = []
        groups = group_episodes(episodes)
        for group in groups.values():
            if has_zero_variance(group, "reward", 0.0):
                continue
            earned = [episode.reward - self.length_penalty * episode.tokens for episode in group]
            best, worst = earned.index(max(earned)), earned.index(min(earned))
            if best != worst:
                out += [label_preference(group[best], 1), label_preference(group[worst], -1)]
        if not out and len(episodes) == 1:  # of a process without rows, whose one row is masked and needs the column
            return [label_preference(episode, 0) for episode in episodes]
        if not out and episodes:
            log.warning("best_worst: in all %d groups every episode earned the same", len(groups))
        return out


def label_preference(episode: Episode, sign: int) -> Episode:
    """Add the column `preference` to all rows of an episode: 1 preferred, -1 rejected, 0 neither."""
    return replace(episode, turns=[_label_turn(turn, sign) for turn in episode.turns])


def _label_turn(turn: Turn, sign: int) -> Turn:
    extra = {**turn.completion.extra, "preference": torch.tensor(float(sign))}
    return replace(turn, completion=replace(turn.completion, extra=extra))
