"""Schedules of reward weights over the iterations of training: linear, cosine, or a step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mmrl.core.types import Episode, Task
from mmrl.rewards.base import Reward
from mmrl.rewards.compose import Composition, WeightedSum

Shape = Literal["linear", "cosine", "step"]


@dataclass(frozen=True)
class WeightSchedule:
    """Weight of a score by iteration: `start` up to iteration `first`, `end` from iteration `last` on.

    Between them the share s = (i - first) / (last - first) of the way is gone, and the weight is start + (end - start)
    f(s), with f(s) = s (linear), (1 - cos(pi s)) / 2 (cosine) or 0 (step: the whole change is at `last`).

    Args:
        start: weight at first.
        end: weight at last.
        last: iteration from which on the weight is `end`.
        first: iteration up to which the weight is `start`.
        shape: linear, cosine or step.
    """

    start: float
    end: float
    last: int
    first: int = 0
    shape: Shape = "linear"

    def __post_init__(self) -> None:
        if not 0 <= self.first < self.last:
            raise ValueError(f"data.reward.schedules: needs 0 <= first < last, got {self.first} and {self.last}")
        if self.shape not in ("linear", "cosine", "step"):
            raise ValueError(f"data.reward.schedules: shape must be linear, cosine or step, got {self.shape!r}")

    def weight(self, iteration: int) -> float:
        """Compute the weight of an iteration, counted from 0."""
        share = min(max((iteration - self.first) / (self.last - self.first), 0.0), 1.0)
        if self.shape == "step":
            share = float(share == 1)
        elif self.shape == "cosine":
            share = (1 - math.cos(math.pi * share)) / 2
        return self.start + (self.end - self.start) * share


@dataclass(frozen=True)
class ScheduledReward(Reward):
    """Another reward with weights that change over the iterations; held-out problems have the weights of the end.

    ToolRL changes the scale of its reward linearly, or at one iteration.
    Source: Qian et al., "ToolRL: Reward is All Tool Learning Needs", arXiv 2504.13958, section 5.

    Args:
        inner: the reward.
        schedules: by name of a score that has a weight in `inner`.
    """

    inner: WeightedSum | Composition
    schedules: Mapping[str, WeightSchedule]

    def __post_init__(self) -> None:
        if unknown := sorted(self.schedules.keys() - self.inner.weights.keys()):
            raise ValueError(
                f"data.reward.schedules names {unknown}, which have no weight; weights are {dict(self.inner.weights)}"
            )

    def at(self, iteration: int) -> Reward:
        weights = {name: schedule.weight(iteration) for name, schedule in self.schedules.items()}
        return replace(self.inner, weights={**self.inner.weights, **weights})

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        return self.inner.scores(episodes)

    def check_task(self, task: Task) -> None:
        self.inner.check_task(task)

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return self.at(max((schedule.last for schedule in self.schedules.values()), default=0))(group)
