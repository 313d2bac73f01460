"""Crafting worlds side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from mmrl.core.lazy_module import torch
from sims.craft.world import COLLECT, EMPTY, CraftWorld

_NUMBERS = ("row", "column", "steps", "gained")
_ARRAYS = ("fields", "held", "had")


class CraftVectorEnv(VectorEnv):
    """Vector environment of crafting worlds, which keep still after their end.

    `infos` has beside `scores`, of every world: `held` int64 [n, I], pieces of every item; `gained` int64 [n], the item
    that the last decision gave, -1 for none; `ingredients` int64 [n, I] and `tools` bool [n, I], what it took, zeros
    without one.

    Args:
        worlds: one an environment.
        subgoals: whether observations end with I zeros, room for a subgoal.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, worlds: Sequence[CraftWorld], subgoals: bool):
        self.envs, self.num_envs = list(worlds), len(worlds)
        world = self.envs[0]
        self.room = len(world.items) if subgoals else 0
        size = 4 * len(world.materials) + len(world.items) + self.room
        self.single_observation_space = spaces.Box(-1.0, 1.0, (size,), np.float32)
        self.single_action_space = spaces.Discrete(COLLECT + 1 + len(world.items) - len(world.materials))
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._seen = np.zeros((self.num_envs, size), np.float32)

    @property
    def over(self) -> np.ndarray:
        """Whether the target was had or time is up, bool [n]."""
        return np.array([world.done or world.steps >= world.max_steps for world in self.envs])

    def captions(self) -> list[str]:
        """The state of every world in words."""
        return [world.caption() for world in self.envs]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        seeds = seed if isinstance(seed, list | tuple) else [seed] * self.num_envs
        for i in np.flatnonzero(mask):
            self.envs[i].reset(seeds[i])
            self._observe(i)
        return self._seen.copy(), self._infos()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        rewards = np.zeros(self.num_envs)
        for i, over in enumerate(self.over):
            if not over:
                rewards[i] = self.envs[i].step(int(actions[i]))
                self._observe(i)
        done = np.array([world.done for world in self.envs])
        return self._seen.copy(), rewards, done, self.over & ~done, self._infos()

    def _observe(self, i: int) -> None:
        observed = self.envs[i].observe()
        self._seen[i, : len(observed)] = observed

    def _infos(self) -> dict[str, Any]:
        worlds, first = self.envs, self.envs[0]
        had = np.stack([world.had for world in worlds]).astype(np.float64)
        gained = np.array([world.gained for world in worlds])
        some = (gained != EMPTY)[:, None]
        scores = {f"skill/{name}": had[:, place] for place, name in enumerate(first.items)}
        return {
            "scores": {"success": had[:, first.items.index(first.target)], **scores},
            "held": np.stack([world.held for world in worlds]),
            "gained": gained,
            "ingredients": np.where(some, first.ingredients[gained], 0),
            "tools": np.where(some, first.tools[gained], False),
        }

    def state_dict(self) -> dict[str, Any]:
        """State of the worlds and what was seen of them, as tensors."""
        numbers = [[getattr(world, name) for name in _NUMBERS] for world in self.envs]
        arrays = {name: torch.from_numpy(np.stack([getattr(world, name) for world in self.envs])) for name in _ARRAYS}
        return {"numbers": torch.tensor(numbers), "seen": torch.from_numpy(self._seen.copy()), **arrays}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._seen = state["seen"].numpy().copy()
        for i, world in enumerate(self.envs):
            for name, value in zip(_NUMBERS, state["numbers"][i].tolist()):
                setattr(world, name, value)
            for name in _ARRAYS:
                setattr(world, name, state[name][i].numpy().copy())
