"""Tabletop tasks for policies that read positions: a state vector in place of images, one control step per decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from mmrl.core.types import Sim
from sims.tabletop.sim import SingleTaskSim
from sims.tabletop.vector import TabletopVectorEnv

_NEAR_M = 0.1  # unit of distances between things, metres
_LAG_M = 0.015  # unit of the distance from the tip to its set-point
_HOME_M = (0.48, 0.0, 0.1)  # middle of where the tip is at work


@dataclass(frozen=True)
class TabletopPositions(Sim):
    """A task of the tabletop whose observation is a state vector of exact positions; nothing is drawn.

    The state has, in this order: the tip's place, its set-point minus the tip, every thing minus the tip, the named
    things first, and where two things are named the second minus the first and the direction of the first one's side
    (cosine and sine). Lengths are divided by 0.1 m, that of the set-point by 0.015 m. Rewards and ends are those of the
    task; a decision is one control step.

    Args:
        sim: the task, with its options.
    """

    sim: SingleTaskSim

    def __post_init__(self) -> None:
        if not isinstance(self.sim, SingleTaskSim) or self.sim.task.name not in ("reach", "push"):
            raise ValueError(f"sim.sim={type(self.sim).__name__}: positions tell the state of reach and push alone")

    @property
    def inner(self) -> SingleTaskSim:
        """The task without a camera, with one control step per decision."""
        return replace(self.sim, observe=()).stepwise()

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.sim.name}-positions"

    def make(self, num_envs: int) -> PositionsVectorEnv:
        return PositionsVectorEnv(self.inner.make(num_envs), self.sizes()["observation_dims"])

    def sizes(self) -> dict[str, Any]:
        dims = 6 + 3 * len(self.sim.task.things) + 5 * (len(self.sim.slots) == 2)
        return {"observation_dims": dims, "actions": 3, "kind": "gaussian", "low": [-1.0] * 3, "high": [1.0] * 3}

    def contract(self) -> dict[str, Any]:
        return {**self.inner.contract(), "sim": self.name, "observe": "positions"}

    def task_of(self, seed: int) -> str:
        return self.sim.task_of(seed)

    def expert(self, env: VectorEnv) -> np.ndarray:
        """The scripted expert's next action for every environment, float32 [n, 1, A]."""
        return self.inner.expert(env.unwrapped)  # type: ignore[arg-type]

    def demonstrate(self, seeds: Sequence[int]) -> list[list[tuple[dict[str, Any], np.ndarray]]]:
        """Episodes of the expert without noise: per decision (observation, action [A])."""
        env = self.make(len(seeds))
        observation, _ = env.reset(seed=list(seeds))
        episodes: list[list[tuple[dict[str, Any], np.ndarray]]] = [[] for _ in seeds]
        while (live := env.unwrapped.live).any():  # type: ignore[attr-defined]
            actions = self.expert(env)[:, 0]
            for i in np.flatnonzero(live):
                episodes[i].append(({"state": observation[i]}, actions[i]))
            observation, *_ = env.step(actions)
        env.close()
        return episodes


class PositionsVectorEnv(VectorWrapper):
    """Gives the state vector [n, D] of a tabletop environment, and takes actions [n, A].

    Args:
        env: of one task, with one control step per decision.
        dims: D.
    """

    def __init__(self, env: TabletopVectorEnv, dims: int):
        super().__init__(env)
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (dims,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.single_action_space = spaces.Box(-1, 1, (env.action_dims,), np.float32)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        _, infos = self.env.reset(seed=seed, options=options)
        return self._observe(), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        _, rewards, terminated, truncated, infos = self.env.step(np.asarray(actions)[:, None])
        return self._observe(), rewards, terminated, truncated, infos

    def _observe(self) -> np.ndarray:
        """State vectors [n, D], as `TabletopPositions` describes them."""
        table = self.env.unwrapped.table  # type: ignore[attr-defined]
        state, rows = table.state(np.arange(self.num_envs)), np.arange(self.num_envs)
        named, count = state.named, state.objects.shape[1]
        # [n, K] the named things in their order, then the others
        order = np.argsort(~state.is_named(*range(named.shape[1])), axis=1, kind="stable")
        order[:, : named.shape[1]] = named
        things = state.objects[rows[:, None], order] - state.tip[:, None]  # [n, K, 3]
        parts = [
            (state.tip - _HOME_M) / _NEAR_M,
            (table.physics.setpoint - state.tip) / _LAG_M,
            things.reshape(-1, 3 * count) / _NEAR_M,
        ]
        if named.shape[1] == 2:
            parts += [(things[:, 1] - things[:, 0]) / _NEAR_M, state.turns[rows, named[:, 0], :2, 0]]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def render(self, i: int = 0, size: int = 256) -> np.ndarray:  # type: ignore[override]
        """Image of environment i, uint8 [H, W, 3]."""
        return self.env.render(i, size)  # type: ignore[call-arg,return-value]

    def state_dict(self) -> dict[str, Any]:
        return self.env.state_dict()  # type: ignore[attr-defined]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env.load_state_dict(state)  # type: ignore[attr-defined]
