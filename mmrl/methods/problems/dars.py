"""DARS: sample more completions of prompts with a low pass rate.

DARS: Difficulty-Adaptive Rollout Sampling, Depth-Breadth Synergy in RLVR, 2025, arXiv:2508.13755.

- how many further completions a prompt gets: `extra_samples`
- sampling them: `AdaptiveSampling`
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from mmrl.core.groups import get_score, group_episodes
from mmrl.core.types import Context, Episode
from mmrl.transforms.base import EpisodeTransform

Rule = Literal["equal", "hardness"]


@dataclass(frozen=True)
class AdaptiveSampling(EpisodeTransform):
    """Samples further completions of prompts whose pass rate is below one half; groups then differ in size.

    The absolute advantages of a group add up to most at a pass rate of one half. The number of further completions is
    the one with which a hard prompt counts as much as that ("equal"), or in proportion to its hardness ("hardness"):
    see `extra_samples`. Source: DARS, Depth-Breadth Synergy in RLVR, 2025, arXiv:2508.13755.

    Args:
        max_group_size: completions of one prompt, the first ones included.
        rule: what the groups shall count.
        scaled: whether advantages will be divided by the group's standard deviation.
        score_name: "reward", or the name of a score.
        success_threshold: smallest value of it that is a success.
    """

    max_group_size: int = 32
    rule: Rule = "equal"
    scaled: bool = False
    score_name: str = "reward"
    success_threshold: float = 1.0

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        groups = group_episodes(episodes)
        indices: dict[int, range] = {}
        for slot, group in groups.items():
            right = sum(get_score(episode, self.score_name) >= self.success_threshold for episode in group) / len(group)
            first = max(episode.sample_index for episode in group) + 1
            extra = extra_samples(right, len(group), self.max_group_size, self.rule, self.scaled)
            if extra:
                indices[slot] = range(first, first + extra)
        for episode in ctx.collector.collect_samples(indices):
            if episode.ended != "error":
                groups[episode.group].append(episode)
        return [episode for group in groups.values() for episode in group]


def extra_samples(right: float, samples: int, max_group_size: int, rule: Rule = "equal", scaled: bool = False) -> int:
    """Number of further episodes for a problem with success rate `right` over `samples` episodes.

    An episode's absolute advantage is on average S = 2 a (1 - a), or 2 sqrt(a (1 - a)) in standard deviations; the
    largest sum over a group is P = N / 2, or N. With a = right, or half an episode where none succeeded:
    equal: (P - N S) / S; hardness: (2 (1 - a) P - N S) / S; rounded up, at most `max_group_size` - N; 0 from
    a = 1/2 on. Source: DARS, Depth-Breadth Synergy in RLVR, 2025, arXiv:2508.13755.
    """
    a = right if right > 0 else 0.5 / samples
    if a >= 0.5:
        return 0
    mass = 2 * math.sqrt(a * (1 - a)) if scaled else 2 * a * (1 - a)
    peak = samples if scaled else samples / 2
    aim = peak if rule == "equal" else 2 * (1 - a) * peak
    return max(min(math.ceil((aim - samples * mass) / mass - 1e-9), max_group_size - samples), 0)
