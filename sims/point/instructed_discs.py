"""Two discs, one of which the instruction of an episode names, with a sparse reward and a scripted expert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from mmrl.core.lazy_module import torch
from mmrl.core.rng import derive_rng
from sims.point.discs import COLOURS, TwoDiscs, TwoDiscsVectorEnv

SENTENCES = tuple(f"move the white point onto the {colour} disc" for colour in COLOURS)
_SLACK = 0.5  # the expert ends within this share of the radius


@dataclass(frozen=True)
class InstructedDiscs(TwoDiscs):
    """`TwoDiscs` whose goal is drawn with the initial state and named by the instruction; `goal` is not read.

    The state vector has two more entries, 1 at the goal's colour and 0 at the other one [8]. The reward of a decision
    is 1 where the point is on the goal's disc afterwards, else 0. Scores: `success`, whether the point is on it at the
    end; `reached`, whether it was at some step; `distance_m` at the end. `image` and `proprio` (the point's place) are
    what a vision-language-action model reads.
    """

    steps: int = 30
    speed: float = 0.1
    radius_m: float = 0.2
    image_size: int = 24

    name = "instructed_discs"

    def make(self, num_envs: int) -> InstructedDiscsVectorEnv:
        return InstructedDiscsVectorEnv(num_envs, self)

    def sizes(self) -> dict[str, Any]:
        robot = {"action_dims": 2, "chunk": 1, "proprio_dims": 2}
        return {**super().sizes(), **robot, "observation_dims": 8}

    def contract(self) -> dict[str, Any]:
        return {name: value for name, value in super().contract().items() if name != "goal"}

    def goal_of(self, seed: int) -> int:
        """Index of the goal's colour in the episode of this seed."""
        return int(derive_rng(self.name, "goal", seed).integers(len(COLOURS)))

    def task_of(self, seed: int) -> str:
        return COLOURS[self.goal_of(seed)]

    def demonstrate(self, seeds: Sequence[int]) -> list[list[tuple[dict[str, Any], np.ndarray]]]:
        """Episodes of a script that moves straight onto the goal's disc and ends there.

        Returns:
            Per decision (observation, action [1, 2]); the last observation is that on the disc, with action 0.
        """
        env = self.make(len(seeds))
        observation, _ = env.reset(seed=list(seeds))
        episodes: list[list[tuple[dict[str, Any], np.ndarray]]] = [[] for _ in seeds]
        live = np.ones(len(seeds), bool)
        for _ in range(self.steps + 1):
            apart = env.goals() - env.points()  # [n, 2] m
            distance = np.linalg.norm(apart, axis=1)
            there = distance <= _SLACK * self.radius_m
            # at full speed along the straight line, and no further than the goal
            actions = apart / np.maximum(np.abs(apart).max(axis=1, keepdims=True), self.speed)
            actions = np.where(there[:, None], 0.0, actions).astype(np.float32)
            for i in np.flatnonzero(live):
                episodes[i].append(({name: column[i] for name, column in observation.items()}, actions[i][None]))
            live &= ~there
            if not live.any():
                break
            observation, *_ = env.step(actions)
        env.close()
        return episodes


class InstructedDiscsVectorEnv(TwoDiscsVectorEnv):
    """Vector environment of `InstructedDiscs`; actions are a push per axis in [-1, 1], [n, 2] or [n, 1, 2]."""

    sim: InstructedDiscs

    def __init__(self, num_envs: int, sim: InstructedDiscs):
        super().__init__(num_envs, sim)
        further = {
            "state": spaces.Box(-1.0, 1.0, (8,), np.float32),
            "proprio": spaces.Box(-1.0, 1.0, (2,), np.float32),
        }
        self.single_observation_space = spaces.Dict({**self.single_observation_space.spaces, **further})
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._goal = np.zeros(num_envs, dtype=np.int64)
        self._reached = np.zeros(num_envs, bool)

    def points(self) -> np.ndarray:
        """Places of the points [n, 2], metres."""
        return self._places[:, 0]

    def goals(self) -> np.ndarray:
        """Places of the goals' discs [n, 2], metres."""
        return self._places[np.arange(self.num_envs), 1 + self._goal]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        seeds = seed if isinstance(seed, list | tuple) else [seed] * self.num_envs
        for i in np.flatnonzero(mask):
            self._goal[i] = self.sim.goal_of(seeds[i])
        self._reached[mask] = False
        return super().reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        pushes = np.asarray(actions, np.float64).reshape(self.num_envs, 2)
        observation, _, terminated, truncated, _ = super().step(pushes)
        distance = np.linalg.norm(self.points() - self.goals(), axis=1)
        on_goal = distance <= self.sim.radius_m
        self._reached |= on_goal
        scores = {"success": on_goal.astype(float), "reached": self._reached.astype(float), "distance_m": distance}
        return observation, on_goal.astype(np.float64), terminated, truncated, {"scores": scores}

    def _observation(self) -> dict[str, Any]:
        observation = super()._observation()
        task = np.eye(len(COLOURS), dtype=np.float32)[self._goal]
        return {
            **observation,
            "state": np.concatenate([observation["state"], task], axis=1),
            "proprio": self.points().astype(np.float32),
            "instruction": tuple(SENTENCES[goal] for goal in self._goal),
        }

    def state_dict(self) -> dict[str, Any]:
        tensors = {"goal": torch.from_numpy(self._goal.copy()), "reached": torch.from_numpy(self._reached.copy())}
        return {**super().state_dict(), **tensors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._goal, self._reached = state["goal"].numpy().copy(), state["reached"].numpy().copy()
