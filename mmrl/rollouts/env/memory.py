"""A policy's memory as a part of the environment: what it remembers is observed again at its next decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from mmrl.core.types import Sim

MEMORY = "memory"
"""Name of the observation that holds the memory."""


class ActionAndMemory(spaces.Box):
    """The numbers of an action, then the memory that follows it, float32.

    Args:
        action: space of the action alone: a box, or numbered actions.
        dims: M, length of the memory.
    """

    def __init__(self, action: Space, dims: int):
        if not isinstance(action, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete)):
            raise ValueError(f"a policy with a memory takes actions that are numbers, and the simulator takes {action}")
        self.action, self.dims = action, dims
        super().__init__(-np.inf, np.inf, (int(np.prod(action.shape or 1)) + dims,), np.float32)

    def split(self, outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Split [n, ...] into actions [n, *shape] of the simulator and memories [n, M]."""
        numbers, memory = outputs[:, : -self.dims], outputs[:, -self.dims :]
        if not isinstance(self.action, spaces.Box):
            numbers = np.rint(numbers)
        return numbers.reshape(len(outputs), *self.action.shape).astype(self.action.dtype), memory


class MemoryVectorEnv(VectorWrapper):
    """Observe the memory that came with the last action; it is zero at the start of an episode.

    So whatever plays, cuts, saves and resumes environments does the same with the memory of the policy.

    Args:
        env: whose finished environments are reset by the caller.
        dims: M, length of the memory.
    """

    single_action_space: ActionAndMemory

    def __init__(self, env: VectorEnv, dims: int):
        super().__init__(env)
        if env.metadata.get("autoreset_mode") is not AutoresetMode.DISABLED:
            raise ValueError(f"{env} resets itself, so its memories cannot be emptied; set sim.autoreset=disabled")
        inner = env.single_observation_space
        named = dict(inner.spaces) if isinstance(inner, spaces.Dict) else {"state": inner}
        memory = spaces.Box(-np.inf, np.inf, (dims,), np.float32)
        self.single_observation_space = spaces.Dict({**named, MEMORY: memory})
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self.single_action_space = ActionAndMemory(env.single_action_space, dims)
        self.action_space = batch_space(self.single_action_space, env.num_envs)
        self._memory = np.zeros((env.num_envs, dims), np.float32)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        starts = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        self._memory = np.where(starts[:, None], np.float32(0), self._memory)
        observation, infos = self.env.reset(seed=seed, options=options)
        return self._with_memory(observation), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        played, memory = self.single_action_space.split(np.asarray(actions))
        observation, rewards, terminated, truncated, infos = self.env.step(played)
        self._memory = memory.astype(np.float32)
        return self._with_memory(observation), rewards, terminated, truncated, infos

    def _with_memory(self, observation: Any) -> dict[str, Any]:
        named = observation if isinstance(observation, Mapping) else {"state": observation}
        return {**named, MEMORY: self._memory.copy()}

    def render(self, i: int = 0, size: int = 256) -> np.ndarray:  # type: ignore[override]
        return self.env.render(i, size)  # type: ignore[call-arg]

    def state_dict(self) -> dict[str, Any]:
        """State of the environments and the memories; refused by environments that cannot be saved."""
        if not hasattr(self.env, "state_dict"):
            raise NotImplementedError(f"{self.env} has no state_dict")
        return {"env": self.env.state_dict(), "memory": torch.from_numpy(self._memory.copy())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        self.env.load_state_dict(state["env"])  # type: ignore[attr-defined]
        self._memory = state["memory"].numpy().copy()


@dataclass(frozen=True)
class MemorySim(Sim):
    """The same simulator with the memory of a policy. All else is the simulator's.

    Args:
        sim: the simulator.
        dims: M, length of the memory.
    """

    sim: Sim
    dims: int

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.sim.name

    def make(self, num_envs: int) -> VectorEnv:
        return MemoryVectorEnv(self.sim.make(num_envs), self.dims)

    def task_of(self, seed: int) -> str:
        return self.sim.task_of(seed)

    def contract(self) -> dict[str, Any]:
        return self.sim.contract()

    def enable_drawing(self) -> MemorySim:
        """This simulator with environments that draw images, where the simulator can."""
        draw = getattr(self.sim, "enable_drawing", None)
        return self if draw is None else MemorySim(draw(), self.dims)
