"""Point mass in a square room without a reward; the final position is a score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from mmrl.core.errors import check_at_least, check_positive
from mmrl.core.lazy_module import torch
from mmrl.core.types import Sim


@dataclass(frozen=True)
class PointSim(Sim):
    """Environments with one point mass each, which starts near the middle at a seeded position.

    Args:
        steps: decisions until time is up.
        speed: largest move in one step along each axis, in metres.
        half: half the side of the room, in metres; walls stop the point.
    """

    steps: int = 50
    speed: float = 0.3
    half: float = 10.0

    name = "point"

    def __post_init__(self) -> None:
        check_at_least(1, "sim", steps=self.steps)
        check_positive("sim", speed=self.speed, half=self.half)

    def make(self, num_envs: int) -> PointVectorEnv:
        return PointVectorEnv(num_envs, self)

    def sizes(self) -> dict[str, Any]:
        return {"observation_dims": 2, "actions": 2, "kind": "gaussian", "low": [-1.0, -1.0], "high": [1.0, 1.0]}

    def contract(self) -> dict[str, Any]:
        return {"sim": self.name, "steps": self.steps, "speed": self.speed, "half": self.half}


class PointVectorEnv(VectorEnv):
    """Vector environment of point masses: observation position / half side [2], action push per axis in [-1, 1]."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, num_envs: int, sim: PointSim):
        self.num_envs, self.sim = num_envs, sim
        self.single_observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.single_action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._at = np.zeros((num_envs, 2))
        self._steps = np.zeros(num_envs, dtype=np.int64)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        seeds = seed if isinstance(seed, list | tuple) else [seed] * self.num_envs
        for i in np.flatnonzero(mask):
            self._at[i] = np.random.default_rng(seeds[i]).uniform(-0.1, 0.1, 2)
        self._steps[mask] = 0
        return self._observation(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        over = self._steps >= self.sim.steps
        moved = self._at + self.sim.speed * np.clip(np.asarray(actions, np.float64), -1, 1)
        self._at = np.where(over[:, None], self._at, moved.clip(-self.sim.half, self.sim.half))
        self._steps = self._steps + ~over
        scores = {"x_m": self._at[:, 0].copy(), "y_m": self._at[:, 1].copy()}
        none = np.zeros(self.num_envs, bool)
        return self._observation(), np.zeros(self.num_envs), none, self._steps >= self.sim.steps, {"scores": scores}

    def _observation(self) -> np.ndarray:
        return (self._at / self.sim.half).astype(np.float32)

    def state_dict(self) -> dict[str, Any]:
        return {"at": torch.from_numpy(self._at.copy()), "steps": torch.from_numpy(self._steps.copy())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._at, self._steps = state["at"].numpy().copy(), state["steps"].numpy().copy()
