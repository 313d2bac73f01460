"""Point in a room with a wall that is open at one end: goals beyond the wall, and a log that never visits them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from mmrl.core.errors import check_at_least, check_interval, check_positive
from mmrl.core.lazy_module import torch
from mmrl.core.rng import derive_rng
from mmrl.core.types import Sim

WALL_END, WALL_HALF = 0.2, 0.2  # the wall reaches from x = -1 to WALL_END, and is twice WALL_HALF thick, metres
ZONES = np.array([[-0.6, 0.6], [0.1, 0.6], [-0.6, -0.6], [0.1, -0.6]])  # around each of which goals lie, metres
ZONE_M, SPREAD_M = 0.25, 0.1  # radius that the log never enters, and radius within which goals are drawn
_TURN = 0.1  # probability that the script of the log turns


@dataclass(frozen=True)
class PointMaze(Sim):
    """Move around a wall to a goal; an episode ends at the goal or when its time is up.

    The room is [-1, 1] m square. Observations are `state`, the position [2], and `goal`, the goal's [2]. The goal is
    beyond the wall, in one of four zones that the script of the log never enters. The reward of a decision is the
    height that is gained, the change of the second coordinate in metres, whatever the goal is. Scores: `success`,
    whether the goal is reached, `distance_m` from it along a straight line, and `height_m`.

    Args:
        goals: False leaves the goal out; an episode then ends when its time is up.
        steps: decisions until time is up.
        speed: largest move in one decision along each axis, metres.
        radius_m: distance from the goal at which it is reached.
    """

    goals: bool = True
    steps: int = 50
    speed: float = 0.15
    radius_m: float = 0.1

    name = "point_maze"

    def __post_init__(self) -> None:
        check_at_least(1, "sim", steps=self.steps)
        check_positive("sim", radius_m=self.radius_m)
        check_interval("sim", f"(0, {2 * WALL_HALF}]", speed=self.speed)  # none jumps over the wall

    def make(self, num_envs: int) -> PointMazeVectorEnv:
        return PointMazeVectorEnv(num_envs, self)

    def sizes(self) -> dict[str, Any]:
        return {"observation_dims": 2, "actions": 2, "kind": "gaussian", "low": [-1.0, -1.0], "high": [1.0, 1.0]}

    def contract(self) -> dict[str, Any]:
        return {"sim": self.name, **{name: getattr(self, name) for name in ("goals", "steps", "speed", "radius_m")}}

    def move(self, at: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Positions [n, 2] after actions [n, 2]; walls stop one coordinate and let the other one slide."""
        push = self.speed * np.clip(np.asarray(actions, np.float64), -1, 1)
        for axis in (0, 1):
            moved = at.copy()
            moved[:, axis] = (at[:, axis] + push[:, axis]).clip(-1, 1)
            at = np.where(in_wall(moved)[:, None], at, moved)
        return at

    def behavior(self, seeds: Sequence[int], noise: float) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
        """Script of a log without a purpose: go straight on, turn now and then, and never enter a zone of goals.

        Args:
            seeds: of the episodes, from which directions and noise are drawn.
            noise: standard deviation of the noise on every action, in units of the action.
        """
        rngs = [derive_rng("point_maze", "behavior", seed) for seed in seeds]
        heading = np.stack([_draw_direction(rng) for rng in rngs])

        def act(env: Any, rows: Any, live: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
            at = np.stack([row["state"] for row in rows]).astype(np.float64)
            shaken = np.stack([rng.standard_normal(2) for rng in rngs])
            turns = np.array([rng.random() for rng in rngs]) < _TURN
            for _ in range(20):
                for i in np.flatnonzero(turns):
                    heading[i] = _draw_direction(rngs[i])
                actions = (heading + noise * shaken).clip(-1, 1).astype(np.float32)
                after = self.move(at, actions)
                stuck = np.linalg.norm(after - at, axis=1) < 0.3 * self.speed
                turns = in_zone(after) | stuck
                if not turns.any():
                    break
            actions[in_zone(after)] = 0  # no direction was drawn that leads past the zone
            return actions, actions

        return act


def in_wall(at: np.ndarray) -> np.ndarray:
    """Whether positions [n, 2] are in the wall: bool [n]."""
    return (at[:, 0] < WALL_END) & (np.abs(at[:, 1]) < WALL_HALF)


def in_zone(at: np.ndarray) -> np.ndarray:
    """Whether positions [n, 2] are in a zone of goals: bool [n]."""
    return (np.linalg.norm(at[:, None] - ZONES, axis=-1) < ZONE_M).any(axis=1)


def draw_episode(rng: np.random.Generator) -> np.ndarray:
    """A start outside of the wall and of all zones, and a goal beyond the wall: [2, 2], metres."""
    while True:
        start = rng.uniform(-1, 1, (1, 2))
        if not in_wall(start)[0] and not in_zone(start)[0]:
            break
    beyond = ZONES[np.sign(ZONES[:, 1]) != np.sign(start[0, 1])]
    shift = SPREAD_M * np.sqrt(rng.random()) * _draw_direction(rng)
    return np.stack([start[0], beyond[rng.integers(len(beyond))] + shift])


def _draw_direction(rng: np.random.Generator) -> np.ndarray:
    angle = rng.uniform(0, 2 * np.pi)
    return np.array([np.cos(angle), np.sin(angle)])


class PointMazeVectorEnv(VectorEnv):
    """Vector environment of `PointMaze`; actions are a push per axis in [-1, 1]."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, num_envs: int, sim: PointMaze):
        self.num_envs, self.sim = num_envs, sim
        names = ("state", "goal") if sim.goals else ("state",)
        place = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.single_observation_space = spaces.Dict({name: place for name in names})
        self.single_action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._places = np.zeros((num_envs, 2, 2))  # of the point and of the goal, metres
        self._steps = np.zeros(num_envs, dtype=np.int64)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        seeds = seed if isinstance(seed, list | tuple) else [seed] * self.num_envs
        for i in np.flatnonzero(mask):
            self._places[i] = draw_episode(np.random.default_rng(seeds[i]))
        self._steps[mask] = 0
        return self._observation(), {}

    def _distance(self) -> np.ndarray:
        return np.linalg.norm(self._places[:, 0] - self._places[:, 1], axis=1)

    def _is_at_goal(self) -> np.ndarray:
        return (self._distance() <= self.sim.radius_m) & self.sim.goals

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        over = (self._steps >= self.sim.steps) | self._is_at_goal()
        before = self._places[:, 0].copy()
        self._places[:, 0] = np.where(over[:, None], before, self.sim.move(before, actions))
        self._steps = self._steps + ~over
        height, reached = self._places[:, 0, 1].copy(), self._is_at_goal()
        scores = {"success": reached.astype(np.float64), "distance_m": self._distance(), "height_m": height}
        time_up = (self._steps >= self.sim.steps) & ~reached
        return self._observation(), height - before[:, 1], reached, time_up, {"scores": scores}

    def _observation(self) -> dict[str, Any]:
        point, goal = self._places.astype(np.float32).transpose(1, 0, 2)
        return {"state": point, "goal": goal} if self.sim.goals else {"state": point}

    def state_dict(self) -> dict[str, Any]:
        return {"places": torch.from_numpy(self._places.copy()), "steps": torch.from_numpy(self._steps.copy())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._places, self._steps = state["places"].numpy().copy(), state["steps"].numpy().copy()
