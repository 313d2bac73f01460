"""Episodes made into preferences: of each group the best and the worst."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import torch

from mmrl.episodes.base import EpisodeTransform
from mmrl.episodes.filter import grouped, uniform
from mmrl.types import Context, Episode, Turn

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BestWorst(EpisodeTransform):
    """Keeps of each group the episode with the highest reward, preferred, and the one with the lowest, not preferred.

    Groups whose episodes all earned the same say nothing and are left out. Of equals the first episode counts.

    Args:
        length_price: taken from a reward for every choice of the policy, against preferring length for its own sake.
    """

    length_price: float = 0.0

    writes = frozenset({"preference"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        out: list[Episode] = []
        groups = grouped(episodes)
        for group in groups.values():
            if uniform(group, "reward", 0.0):
                continue
            earned = [episode.reward - self.length_price * episode.tokens for episode in group]
            best, worst = earned.index(max(earned)), earned.index(min(earned))
            if best != worst:
                out += [stated(group[best], 1), stated(group[worst], -1)]
        spare = next((episode for episode in episodes if episode.turns), None)
        if spare is not None and not out:
            log.warning("best_worst: in all %d groups every episode earned the same", len(groups))
            return [stated(spare, 0)]  # from which nothing is learnt
        return out


def stated(episode: Episode, sign: int) -> Episode:
    """The episode with column `preference` on all its rows: 1 preferred, -1 not, 0 neither."""
    return replace(episode, turns=[_stated(turn, sign) for turn in episode.turns])


def _stated(turn: Turn, sign: int) -> Turn:
    extra = {**turn.completion.extra, "preference": torch.tensor(float(sign))}
    return replace(turn, completion=replace(turn.completion, extra=extra))
