"""Simulator whose reward is a written program."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from mmrl.core.lazy_module import torch
from mmrl.tools.programs.program import RewardProgram
from sims.reward_models import RewardModelSim
from sims.written.state import read_states


@dataclass(frozen=True)
class WrittenRewardSim(RewardModelSim):
    """The same simulator with the reward env_reward_coef * (environment reward) + (reward of the program).

    Args:
        reward_model: the program.
        state_names: as of `read_states`.
    """

    reward_model: RewardProgram  # type: ignore[assignment]
    state_names: Sequence[str] | None = None

    def make(self, num_envs: int) -> VectorEnv:
        env = self.sim.make(num_envs)
        return WrittenRewardVectorEnv(env, self.reward_model, self.env_reward_coef, self.state_names)


class WrittenRewardVectorEnv(VectorWrapper):
    """Add the program's reward to every decision; ended and failed environments get none.

    A program that fails ends the run: a reward that cannot be computed is no number.
    """

    def __init__(self, env: VectorEnv, program: RewardProgram, env_reward_coef: float, names: Sequence[str] | None):
        super().__init__(env)
        if env.metadata.get("autoreset_mode") is not AutoresetMode.DISABLED:
            raise ValueError(
                f"{env}: a written reward needs the state after the last decision; set sim.autoreset=disabled"
            )
        self.program, self.env_reward_coef, self.names = program, env_reward_coef, names
        self._states: list[dict[str, Any]] = []  # before the next decision
        self._over = np.zeros(env.num_envs, bool)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        self._states, self._over = read_states(self.env, observation, self.names), self._over & ~mask
        return observation, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(actions)
        failed = np.asarray(info.get("error", np.zeros(self.num_envs)), object).astype(bool)
        rows = np.flatnonzero(~self._over & ~failed)
        after, played = read_states(self.env, observation, self.names), np.asarray(actions).tolist()
        rewards = self.env_reward_coef * np.asarray(reward, np.float64)
        rewards[rows] += self.program([(self._states[i], played[i], after[i]) for i in rows])
        self._states, self._over = after, terminated | truncated
        return observation, rewards, terminated, truncated, info

    def state_dict(self) -> dict[str, Any]:
        """The simulator's, and the states before the next decision."""
        states = {"states": json.dumps(self._states), "over": torch.from_numpy(self._over.copy())}
        return {"env": self.env.state_dict(), **states}  # type: ignore[attr-defined]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env.load_state_dict(state["env"])  # type: ignore[attr-defined]
        self._states, self._over = json.loads(state["states"]), state["over"].numpy().copy()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "step_callback":  # videos are recorded from the simulator itself
            self.env.step_callback = value  # type: ignore[attr-defined]
        else:
            super().__setattr__(name, value)
