"""Point in a room with a red and a blue disc, with pictures, and a log of visits to either of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from mmrl.core.errors import check_at_least, check_positive
from mmrl.core.lazy_module import torch
from mmrl.core.rng import derive_rng
from mmrl.core.types import Sim

COLOURS = ("red", "blue")
_PAINT = np.array([[210, 40, 40], [40, 70, 210], [250, 250, 250]], np.float32)  # the discs, and the point on top
_FLOOR = np.array([60, 70, 60], np.float32)
_APART_M = 0.8  # least distance of the discs
_POINT_M = 0.12  # radius of the painted point


@dataclass(frozen=True)
class TwoDiscs(Sim):
    """Move to the disc of the goal's colour and stay there; an episode ends when its time is up.

    The state vector is the position of the point, the red disc and the blue disc [6], each in [-1, 1] m. The reward of
    a decision is minus the distance from the goal afterwards, m. Scores: `success`, whether the point is on the disc
    at the end, and `distance_m`.

    Args:
        goal: colour of the disc that is rewarded.
        steps: decisions until time is up.
        speed: largest move in one decision along each axis, metres.
        radius_m: of the discs.
        image_size: pixels a side of the picture.
    """

    goal: Literal["red", "blue"] = "red"
    steps: int = 20
    speed: float = 0.2
    radius_m: float = 0.25
    image_size: int = 20

    name = "two_discs"

    def __post_init__(self) -> None:
        check_at_least(1, "sim", steps=self.steps)
        check_at_least(8, "sim", image_size=self.image_size)
        check_positive("sim", speed=self.speed, radius_m=self.radius_m)

    def make(self, num_envs: int) -> TwoDiscsVectorEnv:
        return TwoDiscsVectorEnv(num_envs, self)

    def sizes(self) -> dict[str, Any]:
        return {"observation_dims": 6, "actions": 2, "kind": "gaussian", "low": [-1.0, -1.0], "high": [1.0, 1.0]}

    def contract(self) -> dict[str, Any]:
        names = ("goal", "steps", "speed", "radius_m", "image_size")
        return {"sim": self.name, **{name: getattr(self, name) for name in names}}

    def behavior(self, seeds: Sequence[int], noise: float) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
        """Script of a log without a purpose: an episode visits the red disc, the blue disc or any place.

        Args:
            seeds: of the episodes, from which places and noise are drawn.
            noise: standard deviation of the noise on every action, in units of the action.
        """
        rngs = [derive_rng("two_discs", "behavior", seed) for seed in seeds]
        kinds = np.array([rng.integers(3) for rng in rngs])
        places = np.stack([rng.uniform(-1, 1, 2) for rng in rngs])

        def act(env: Any, rows: Any, live: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
            at, red, blue = np.split(np.stack([row["state"] for row in rows]), 3, axis=1)
            aim = np.choose(kinds[:, None], [red, blue, places])
            shaken = np.stack([rng.standard_normal(2) for rng in rngs])
            actions = ((aim - at) / self.speed).clip(-1, 1) + noise * shaken
            played = actions.clip(-1, 1).astype(np.float32)
            return played, played

        return act


class TwoDiscsVectorEnv(VectorEnv):
    """Vector environment of `TwoDiscs`; actions are a push per axis in [-1, 1]."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED, "render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, num_envs: int, sim: TwoDiscs):
        self.num_envs, self.sim = num_envs, sim
        picture = spaces.Box(0, 255, (sim.image_size, sim.image_size, 3), np.uint8)
        state = spaces.Box(-1.0, 1.0, (6,), np.float32)
        words = spaces.Text(max_length=100, charset="abcdefghijklmnopqrstuvwxyz ")
        self.single_observation_space = spaces.Dict({"state": state, "image": picture, "instruction": words})
        self.single_action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._places = np.zeros((num_envs, 3, 2))  # of the point, the red disc and the blue disc, metres
        self._steps = np.zeros(num_envs, dtype=np.int64)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        seeds = seed if isinstance(seed, list | tuple) else [seed] * self.num_envs
        for i in np.flatnonzero(mask):
            self._places[i] = draw_places(np.random.default_rng(seeds[i]), self.sim.radius_m)
        self._steps[mask] = 0
        return self._observation(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        over = self._steps >= self.sim.steps
        moved = self._places[:, 0] + self.sim.speed * np.clip(np.asarray(actions, np.float64), -1, 1)
        self._places[:, 0] = np.where(over[:, None], self._places[:, 0], moved.clip(-1, 1))
        self._steps = self._steps + ~over
        goal = self._places[:, 1 + COLOURS.index(self.sim.goal)]
        distance = np.linalg.norm(self._places[:, 0] - goal, axis=1)
        scores = {"success": (distance <= self.sim.radius_m).astype(np.float64), "distance_m": distance}
        none = np.zeros(self.num_envs, bool)
        return self._observation(), -distance, none, self._steps >= self.sim.steps, {"scores": scores}

    def _observation(self) -> dict[str, Any]:
        state = self._places.reshape(self.num_envs, 6).astype(np.float32)
        words = (f"move the white point onto the {self.sim.goal} disc",) * self.num_envs
        radii = (self.sim.radius_m, self.sim.radius_m, _POINT_M)
        images = paint(self._places[:, [1, 2, 0]], radii, self.sim.image_size)
        return {"state": state, "image": images, "instruction": words}

    def render(self) -> Any:
        """Pictures uint8 [n, S, S, 3]."""
        return self._observation()["image"]

    def state_dict(self) -> dict[str, Any]:
        return {"places": torch.from_numpy(self._places.copy()), "steps": torch.from_numpy(self._steps.copy())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._places, self._steps = state["places"].numpy().copy(), state["steps"].numpy().copy()


def draw_places(rng: np.random.Generator, radius_m: float) -> np.ndarray:
    """Places [3, 2] of the point and of two discs that do not touch, metres."""
    reach = 1 - min(radius_m, 0.5)
    while True:
        places = np.concatenate([rng.uniform(-1, 1, (1, 2)), rng.uniform(-reach, reach, (2, 2))])
        if np.linalg.norm(places[1] - places[2]) >= min(_APART_M, 2 * reach):
            return places


def paint(places: np.ndarray, radii: Sequence[float], size: int) -> np.ndarray:
    """Pictures uint8 [n, size, size, 3] of discs at places [n, 3, 2] in [-1, 1] m, the last on top; x to the right."""
    grid = (np.arange(size) + 0.5) / size * 2 - 1
    images = np.broadcast_to(_FLOOR, (len(places), size, size, 3)).copy()
    for k, radius in enumerate(radii):
        across = (grid[None, None, :] - places[:, k, 0, None, None]) ** 2
        distance = np.sqrt(across + (grid[None, ::-1, None] - places[:, k, 1, None, None]) ** 2)
        cover = ((radius - distance) * size / 2 + 0.5).clip(0, 1)[..., None]  # share of a pixel, at most 1
        images = images * (1 - cover) + cover * _PAINT[k]
    return images.round().astype(np.uint8)
