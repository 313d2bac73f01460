"""Wrapper that shows an agent the next subgoal of a grid world and pays for reaching it."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces

from mmrl.core.rng import derive_rng
from sims.subgoals.plans import Field
from sims.task import split_of

Form = Literal["position", "object"]
TYPES, COLOURS, STATES, DIRECTIONS = 11, 6, 3, 4
FIELD_SIZE = TYPES + COLOURS + STATES


class Plans(Protocol):
    """Source of subgoals: `ScriptedPlans` or `FilePlans`."""

    def read(self, grid: Any, seed: int) -> list[Field]: ...


class SubgoalWrapper(gymnasium.Wrapper):
    """The agent's view of a grid world beside its next subgoal, with a bonus for reaching it.

    A subgoal is a field. It is met by standing on it, or when what lies there changes: a key that is taken, a door that
    is opened. Then the bonus v (1 - k / T) is paid, k steps after the subgoal before was met and T the most steps of an
    episode, and the next subgoal is shown. Held-out episodes have no subgoals, and a share of the training episodes
    neither, so that the policy learns to act without.

    Observations float32 [S]: of each of the 7 x 7 fields of the view the type (11), colour (6) and state (3) of its
    object one-hot, the agent's direction (4), and the subgoal: whether there is one, with its distance in columns and
    rows in units of the grid ("position"), or the type and colour of what lies there ("object"); zeros without one.
    At the end of an episode `info["scores"]` has success, subgoals/met and subgoals/planned.

    Source: Ruiz-Gonzalez et al., "Words as Beacons", 2024, arXiv:2410.08632, section 3.

    Args:
        env: of MiniGrid, with the agent's view as observation.
        plans: the subgoals of an episode.
        form: how a subgoal is shown.
        bonus: v.
        hidden: share of the training episodes without subgoals.
    """

    def __init__(self, env: gymnasium.Env, plans: Plans, form: Form, bonus: float, hidden: float):
        super().__init__(env)
        self.grid: Any = env.unwrapped
        self.plans, self.form, self.bonus, self.hidden = plans, form, bonus, hidden
        limit = getattr(env.spec, "max_episode_steps", None)
        self.most_steps = min(self.grid.max_steps, limit or self.grid.max_steps)
        view = env.observation_space["image"].shape[:2]  # type: ignore[index]
        subgoal_size = 1 + (2 if form == "position" else TYPES + COLOURS)
        size = view[0] * view[1] * FIELD_SIZE + DIRECTIONS + subgoal_size
        self.observation_space = spaces.Box(-1, 1, (size,), np.float32)
        self.plan: list[Field] = []
        self.met = self.waited = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self.met = self.waited = 0
        self.plan = []
        training = seed is not None and split_of(seed) == "train"
        if training and derive_rng("hidden subgoals", seed).random() >= self.hidden:
            self.plan = self.plans.read(self.grid, seed)
        return self._observe(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        subgoal = self.subgoal
        before = subgoal and self._content(subgoal)
        observation, reward, terminated, truncated, info = self.env.step(action)
        reward = success = float(reward)
        self.waited += 1
        if subgoal is not None and (tuple(self.grid.agent_pos) == subgoal or self._content(subgoal) != before):
            reward += self.bonus * (1 - self.waited / self.most_steps)
            self.met, self.waited = self.met + 1, 0
        if terminated or truncated:
            scores = {"success": float(terminated and success > 0), "subgoals/met": float(self.met)}
            info = {**info, "scores": {**scores, "subgoals/planned": float(bool(self.plan))}}
        return self._observe(observation), reward, terminated, truncated, info

    @property
    def subgoal(self) -> Field | None:
        """The next subgoal; None without one."""
        return self.plan[self.met] if self.met < len(self.plan) else None

    def _content(self, position: Field) -> tuple[int, int, int] | None:
        cell = self.grid.grid.get(*position)
        return cell and cell.encode()

    def _observe(self, observation: Any) -> np.ndarray:
        image = observation["image"]
        parts = [_one_hot(image[..., i], size) for i, size in enumerate((TYPES, COLOURS, STATES))]
        direction = _one_hot(np.array(observation["direction"]), DIRECTIONS)
        return np.concatenate([np.concatenate(parts, axis=-1).ravel(), direction, self._show()])

    def _show(self) -> np.ndarray:
        subgoal = self.subgoal
        if self.form == "position":
            if subgoal is None:
                return np.zeros(3, np.float32)
            columns, rows = np.subtract(subgoal, self.grid.agent_pos) / (self.grid.width, self.grid.height)
            return np.array([1, columns, rows], np.float32)
        content = subgoal and self._content(subgoal)
        if content is None:
            return np.zeros(1 + TYPES + COLOURS, np.float32)
        kind, colour = (np.array(number) for number in content[:2])
        return np.concatenate([np.ones(1, np.float32), _one_hot(kind, TYPES), _one_hot(colour, COLOURS)])


def _one_hot(numbers: np.ndarray, size: int) -> np.ndarray:
    return np.eye(size, dtype=np.float32)[numbers]
