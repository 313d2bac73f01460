"""Simulator with a reward model on camera images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from mmrl.core.lazy_module import torch
from mmrl.core.types import Sim
from mmrl.rewards.models.frames import FrameReward


@dataclass(frozen=True)
class RewardModelSim(Sim):
    """The same simulator with the reward env_reward_coef * (environment reward) + (reward of the model).

    What the simulator reports as scores, such as success, stays as it is. All else is the simulator's.

    Args:
        sim: the simulator; its observations hold "image" and "instruction".
        reward_model: of every decision, from the images before and after it.
        env_reward_coef: coefficient of the simulator's own reward.
    """

    sim: Sim
    reward_model: FrameReward
    env_reward_coef: float = 0.0

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.sim.name

    def make(self, num_envs: int) -> VectorEnv:
        return RewardModelVectorEnv(self.sim.make(num_envs), self.reward_model, self.env_reward_coef)

    def task_of(self, seed: int) -> str:
        return self.sim.task_of(seed)

    def sizes(self) -> dict[str, Any]:
        return self.sim.sizes()

    def contract(self) -> dict[str, Any]:
        return self.sim.contract()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "sim":
            raise AttributeError(name)
        return getattr(self.sim, name)  # demonstrate, label_images and other methods


class RewardModelVectorEnv(VectorWrapper):
    """Add the reward model's reward to every decision; ended and failed environments get none."""

    def __init__(self, env: VectorEnv, reward_model: FrameReward, env_reward_coef: float):
        super().__init__(env)
        if env.metadata.get("autoreset_mode") is not AutoresetMode.DISABLED:
            raise ValueError(
                f"{env}: the reward model needs the image after the last decision; set sim.autoreset=disabled"
            )
        if "image" not in env.single_observation_space.spaces:  # type: ignore[attr-defined]
            raise ValueError(f"{env} has no 'image' in its observations for the reward model")
        if hasattr(env, "draws_ends"):
            env.draws_ends = True
        self.reward_model, self.env_reward_coef = reward_model, env_reward_coef
        self._image: Any = None
        self._over = np.zeros(env.num_envs, bool)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        self._image, self._over = observation["image"], self._over & ~mask
        return observation, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(actions)
        failed = np.asarray(info.get("error", np.zeros(self.num_envs)), object).astype(bool)
        rows = np.flatnonzero(~self._over & ~failed)
        rewards = self.env_reward_coef * np.asarray(reward, np.float64)
        if rows.size:
            instructions = [str(observation["instruction"][i]) for i in rows]
            rewards[rows] += self.reward_model(self._image[rows], observation["image"][rows], instructions)
        self._image, self._over = observation["image"], terminated | truncated
        return observation, rewards, terminated, truncated, info

    def state_dict(self) -> dict[str, Any]:
        """The simulator's, and the images before the next decision."""
        tensors = {"image": torch.from_numpy(np.array(self._image)), "over": torch.from_numpy(self._over.copy())}
        return {"env": self.env.state_dict(), **tensors}  # type: ignore[attr-defined]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env.load_state_dict(state["env"])  # type: ignore[attr-defined]
        self._image, self._over = state["image"].numpy().copy(), state["over"].numpy().copy()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "step_callback":  # videos are recorded from the simulator itself
            self.env.step_callback = value  # type: ignore[attr-defined]
        else:
            super().__setattr__(name, value)
