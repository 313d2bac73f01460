"""Levels for two students: the observation says which of them plays the episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sims.levels.sim import GymLevelSim
from sims.levels.space import LevelSpace
from sims.levels.wrapper import LevelWrapper


@dataclass(frozen=True)
class StudentLevelSim(GymLevelSim):
    """As `GymLevelSim`, for two students: of initial states with an even number 0 plays, of the others 1.

    The number of the student is appended to the observation, for `StudentPairPolicy`.
    """

    def make_registered(self) -> gymnasium.Env:
        return StudentWrapper(super().make_registered())

    def contract(self) -> dict[str, Any]:
        return {**super().contract(), "students": 2}


class StudentWrapper(gymnasium.Wrapper):
    """Appends the student's number, the lowest bit of the initial state's number, to a vector observation."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.student = 0
        inner = env.observation_space
        if not isinstance(inner, spaces.Box) or len(inner.shape) != 1:
            raise ValueError(f"two students need observations that are a vector of numbers, got {inner}")
        low, high = np.append(inner.low, 0).astype(np.float32), np.append(inner.high, 1).astype(np.float32)
        self.observation_space = spaces.Box(low, high, dtype=np.float32)

    @property
    def levels(self) -> LevelSpace:
        """The level space of the environment."""
        assert isinstance(self.env, LevelWrapper)
        return self.env.levels

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.student = int(seed) >> 1 & 1  # under it lies the split
        observation, info = self.env.reset(seed=seed, options=options)
        return self._observe(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, *others = self.env.step(action)
        return (self._observe(observation), *others)  # type: ignore[return-value]

    def _observe(self, observation: np.ndarray) -> np.ndarray:
        return np.append(observation, self.student).astype(np.float32)
