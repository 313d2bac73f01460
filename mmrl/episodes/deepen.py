"""More episodes of the problems that are hard."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from mmrl.episodes.base import EpisodeTransform
from mmrl.episodes.filter import earned, grouped
from mmrl.types import Context, Episode

Rule = Literal["equal", "hardness"]


@dataclass(frozen=True)
class Deepen(EpisodeTransform):
    """Plays further episodes of problems that less than half of the first ones solved; groups then differ in size.

    The advantages of a group add up to most where half of its episodes are right. The number of further episodes is
    the one with which a hard problem counts as much ("equal"), or by how hard it is ("hardness"). See `extra_samples`.

    Args:
        most: episodes of one problem, the first ones included.
        rule: what the groups shall count.
        scaled: whether advantages will be divided by the group's standard deviation.
        field: "reward", or the name of a score.
        solved: least value of it that is a success.
    """

    most: int = 32
    rule: Rule = "equal"
    scaled: bool = False
    field: str = "reward"
    solved: float = 1.0

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        if ctx.collect_samples is None:
            raise RuntimeError("deepen: this loop cannot collect further episodes; leave it out of data.transforms")
        groups = grouped(episodes)
        indices: dict[int, range] = {}
        for slot, group in groups.items():
            right = sum(earned(episode, self.field) >= self.solved for episode in group) / len(group)
            first = max(episode.sample_index for episode in group) + 1
            extra = extra_samples(right, len(group), self.most, self.rule, self.scaled)
            if extra:
                indices[slot] = range(first, first + extra)
        for episode in ctx.collect_samples(indices):
            if episode.ended != "error":
                groups[episode.group].append(episode)
        return [episode for group in groups.values() for episode in group]


def extra_samples(right: float, samples: int, most: int, rule: Rule = "equal", scaled: bool = False) -> int:
    """How many further episodes a problem gets of which the share `right` of `samples` succeeded.

    An episode's absolute advantage is on average S = 2 a (1 - a), or 2 sqrt(a (1 - a)) in standard deviations; the
    largest sum over a group is P = N / 2, or N. With a = right, or half an episode where none succeeded:
    equal: (P - N S) / S; hardness: (2 (1 - a) P - N S) / S; rounded up, at most `most` - N; 0 from a = 1/2 on.
    Source: DARS, Depth-Breadth Synergy in RLVR, 2025, arXiv:2508.13755.
    """
    a = right if right > 0 else 0.5 / samples
    if a >= 0.5:
        return 0
    mass = 2 * math.sqrt(a * (1 - a)) if scaled else 2 * a * (1 - a)
    peak = samples if scaled else samples / 2
    aim = peak if rule == "equal" else 2 * (1 - a) * peak
    return max(min(math.ceil((aim - samples * mass) / mass - 1e-9), most - samples), 0)
