"""Simulator with a skill vector per episode, for unsupervised skill discovery (METRA)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from mmrl.core.rng import derive_rng
from mmrl.core.types import Sim


@dataclass(frozen=True)
class SkillConditionedSim(Sim):
    """The same environments; the state vector is followed by the episode's skill, drawn from its seed.

    Args:
        sim: the simulator; its observations are a state vector.
        skills: length of the skill.
        kind: "direction", a unit vector, uniform over the sphere; "one_hot", one of so many.
        env_reward_coef: coefficient of the simulator's own reward.
    """

    sim: Sim
    skills: int = 2
    kind: Literal["direction", "one_hot"] = "direction"
    env_reward_coef: float = 0.0

    def __post_init__(self) -> None:
        if self.skills < 1 or self.kind not in ("direction", "one_hot"):
            raise ValueError(
                f"sim skilled: skills >= 1 and kind direction or one_hot, got {self.skills}, {self.kind!r}"
            )

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.sim.name

    def make(self, num_envs: int) -> VectorEnv:
        return SkillConditionedVectorEnv(self.sim.make(num_envs), self)

    def sizes(self) -> dict[str, Any]:
        sizes = self.sim.sizes()
        return {**sizes, "observation_dims": sizes["observation_dims"] + self.skills}

    def contract(self) -> dict[str, Any]:
        return {**self.sim.contract(), "skills": self.skills, "kind": self.kind}

    def skill(self, seed: int) -> np.ndarray:
        """The skill of an episode that begins with this seed, float32 [skills]."""
        rng = derive_rng("skill", seed)
        if self.kind == "one_hot":
            return np.eye(self.skills, dtype=np.float32)[rng.integers(self.skills)]
        vector = rng.standard_normal(self.skills)
        return (vector / np.linalg.norm(vector)).astype(np.float32)


class SkillConditionedVectorEnv(VectorWrapper):
    """Appends each environment's skill to its state, and takes the reward away."""

    def __init__(self, env: VectorEnv, sim: SkillConditionedSim):
        super().__init__(env)
        space = env.single_observation_space
        if env.metadata.get("autoreset_mode") is not AutoresetMode.DISABLED:
            raise ValueError(
                f"{env}: a skill belongs to an episode that is begun by a seed; set sim.autoreset=disabled"
            )
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise ValueError(f"skills are appended to a state vector, but {env} gives {space}")
        wide = [
            np.concatenate([bound, np.full(sim.skills, edge)]) for bound, edge in ((space.low, -1), (space.high, 1))
        ]
        self.single_observation_space = spaces.Box(*(side.astype(np.float32) for side in wide), dtype=np.float32)  # type: ignore[call-overload]
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self.sim, self._skills = sim, np.zeros((env.num_envs, sim.skills), np.float32)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        for i in np.flatnonzero(mask):
            self._skills[i] = self.sim.skill(seed[i])
        return self._observation(observation), info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(actions)
        return (
            self._observation(observation),
            self.sim.env_reward_coef * np.asarray(reward, np.float64),
            terminated,
            truncated,
            info,
        )

    def _observation(self, observation: Any) -> np.ndarray:
        return np.concatenate([np.asarray(observation, np.float32), self._skills], axis=1)

    def state_dict(self) -> dict[str, Any]:
        return {"env": self.env.state_dict(), "skills": torch.from_numpy(self._skills.copy())}  # type: ignore[attr-defined]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env.load_state_dict(state["env"])  # type: ignore[attr-defined]
        self._skills = state["skills"].numpy().copy()
