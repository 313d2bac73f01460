"""Simulators that go wrong on purpose, and one that remembers the seeds that it was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorWrapper

from sims.tabletop import Reach

SEEN: dict[str, list[int]] = {"reset": [], "demonstrate": [], "label_images": []}
"""Seeds that every RememberingReach of this process was given, by where."""


@dataclass(frozen=True)
class RememberingReach(Reach):
    """Reach that writes the seeds of its initial states into SEEN."""

    def make(self, num_envs: int) -> Any:
        env = super().make(num_envs)
        begin = env.reset

        def reset(*, seed: Any = None, options: Any = None) -> Any:
            SEEN["reset"] += [int(one) for one in seed]
            return begin(seed=seed, options=options)

        env.reset = reset  # type: ignore[method-assign]
        return env

    def demonstrate(self, seeds: Sequence[int], noise: float = 0.3) -> Any:
        SEEN["demonstrate"] += list(seeds)
        return super().demonstrate(seeds, noise)

    def label_images(self, seeds: Sequence[int], joint_noise: float = 0.3) -> Any:
        SEEN["label_images"] += list(seeds)
        return super().label_images(seeds, joint_noise)


@dataclass(frozen=True)
class DivergingReach(Reach):
    """Reach in which a joint of every third environment starts to spin in its second decision."""

    speed: float = 1e6  # rad/s; 0 writes NaN in its place

    def make(self, num_envs: int) -> Any:
        return _Diverging(super().make(num_envs), self.speed)


class _Diverging(VectorWrapper):
    def __init__(self, env: Any, speed: float):
        super().__init__(env)
        self.speed = speed

    def step(self, actions: Any) -> Any:
        spinning = self.env.live & (self.env.decisions == 1) & (np.arange(self.num_envs) % 3 == 0)
        self.env.physics.batch.bind("qvel")[spinning, 0] = self.speed or np.nan
        return self.env.step(actions)


@dataclass
class Unstable(gymnasium.Env):
    """A state of four numbers; every other episode, by its seed, ends with one that is not finite at its third step."""

    observation_space: Any = field(default_factory=lambda: gymnasium.spaces.Box(-9, 9, (4,), np.float32))
    action_space: Any = field(default_factory=lambda: gymnasium.spaces.Discrete(2))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time, self.bad = 0, bool(self.np_random.integers(2))
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        seen = np.full(4, np.nan if self.bad and self.time == 3 else self.time / 10, np.float32)
        return seen, 1.0, self.time == 5, False, {}


gymnasium.register("tests/Unstable-v0", entry_point=Unstable)
