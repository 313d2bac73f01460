"""More attempts at the problems that are hard."""

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
    """Plays further attempts at problems that less than half of the first ones solved; groups then differ in size.

    The advantages of a group add up to most where half of its attempts are right. The number of further attempts is
    the one with which a hard problem counts as much ("equal"), or by how hard it is ("hardness"). See `extra_attempts`.

    Args:
        most: attempts at one problem, the first ones included.
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
        if ctx.again is None:
            raise RuntimeError("deepen: this loop cannot play further attempts; leave it out of data.episodes")
        groups = grouped(episodes)
        tries: dict[int, range] = {}
        for slot, group in groups.items():
            right = sum(earned(episode, self.field) >= self.solved for episode in group) / len(group)
            first = max(episode.attempt for episode in group) + 1
            extra = extra_attempts(right, len(group), self.most, self.rule, self.scaled)
            if extra:
                tries[slot] = range(first, first + extra)
        for episode in ctx.again(tries):
            if episode.ended != "error":
                groups[episode.group].append(episode)
        return [episode for group in groups.values() for episode in group]


def extra_attempts(right: float, attempts: int, most: int, rule: Rule = "equal", scaled: bool = False) -> int:
    """How many further attempts a problem gets of which the share `right` of `attempts` succeeded.

    An attempt's absolute advantage is on average S = 2 a (1 - a), or 2 sqrt(a (1 - a)) in standard deviations; the
    largest sum over a group is P = N / 2, or N. With a = right, or half an attempt where none succeeded:
    equal: (P - N S) / S; hardness: (2 (1 - a) P - N S) / S; rounded up, at most `most` - N; 0 from a = 1/2 on.
    Source: DARS, Depth-Breadth Synergy in RLVR, 2025, arXiv:2508.13755.
    """
    a = right if right > 0 else 0.5 / attempts
    if a >= 0.5:
        return 0
    mass = 2 * math.sqrt(a * (1 - a)) if scaled else 2 * a * (1 - a)
    peak = attempts if scaled else attempts / 2
    aim = peak if rule == "equal" else 2 * (1 - a) * peak
    return max(min(math.ceil((aim - attempts * mass) / mass - 1e-9), most - attempts), 0)
