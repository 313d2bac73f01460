"""Scale of rewards by the spread of discounted returns, over a whole run."""

from __future__ import annotations

import math
from typing import Any

from mmrl.core.errors import check_fraction
from mmrl.distributed import parallel

CLIP = 10.0
"""Largest absolute value of a scaled reward, as in Stable-Baselines3's VecNormalize."""
_EPSILON = 1e-8


class RewardScale:
    """1 / sqrt(var + 1e-8) of R_t = gamma R_{t-1} + r_t over all decisions so far, where R starts at 0 in an episode.

    The decisions of an iteration are included before its rewards are scaled. All processes have the same scale.

    Args:
        gamma: discount factor of a decision.
    """

    def __init__(self, gamma: float):
        check_fraction("rollout", reward_discount=gamma)
        self.gamma = gamma
        self._returns: list[float] = []  # of this iteration and process
        self._count = self._mean = self._squares = 0.0  # _squares: sum of squared distances from the mean

    def add(self, previous: float, reward: float) -> float:
        """Note the reward of a decision; returns R after it from R before it."""
        current = self.gamma * previous + reward
        self._returns.append(current)
        return current

    def update(self) -> float:
        """Include what was noted and return the scale. Collective."""
        for value in parallel.gather(self._returns):
            self._count += 1
            distance = value - self._mean
            self._mean += distance / self._count
            self._squares += distance * (value - self._mean)
        self._returns = []
        return 1 / math.sqrt(self._squares / self._count + _EPSILON) if self._count and self._squares else 1.0

    def state_dict(self) -> dict[str, Any]:
        return {"count": self._count, "mean": self._mean, "squares": self._squares}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._count, self._mean, self._squares = state["count"], state["mean"], state["squares"]
