"""Point and a disc as pictures alone, on a plain floor or on a random texture that moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from mmrl.core.errors import check_at_least, check_positive
from mmrl.core.lazy_module import torch
from mmrl.core.types import Sim

_PAINT = np.array([[230, 40, 40], [250, 250, 250]], np.float32)  # the disc, and the point on top
_FLOOR = np.array([40, 70, 70], np.float32)
_TILES = 6  # random colours of the texture along each axis
_BRIGHTEST = (60.0, 230.0, 230.0)  # red, green and blue of the texture: neither disc nor point are hidden by it
_DRIFT = 0.5  # largest move of the texture in one decision along each axis, tiles


@dataclass(frozen=True)
class PictureReach(Sim):
    """Move a point onto a disc that is seen in pictures alone; an episode ends when its time is up.

    The reward of a decision is minus the distance from the disc afterwards, m. The background says nothing about it:
    "plain" is one colour, "moving" a texture of random colours and direction in every episode, which takes most of the
    variance of the pixels. Scores: `success`, whether the point is on the disc at the end, and `distance_m`.

    Args:
        background: what is behind the disc.
        centred: the disc is in the middle in every episode; otherwise its place is drawn.
        steps: decisions until time is up.
        speed: largest move in one decision along each axis, metres.
        radius_m: of the disc; that of the point is 0.6 times as large.
        image_size: pixels a side of the picture.
    """

    background: Literal["plain", "moving"] = "plain"
    centred: bool = True
    steps: int = 20
    speed: float = 0.2
    radius_m: float = 0.25
    image_size: int = 20

    name = "picture_reach"

    def __post_init__(self) -> None:
        check_at_least(1, "sim", steps=self.steps)
        check_at_least(8, "sim", image_size=self.image_size)
        check_positive("sim", speed=self.speed, radius_m=self.radius_m)
        if self.background not in ("plain", "moving"):
            raise ValueError(f"sim.background must be plain or moving, got {self.background!r}")

    def make(self, num_envs: int) -> PictureReachVectorEnv:
        return PictureReachVectorEnv(num_envs, self)

    def sizes(self) -> dict[str, Any]:
        box = {"actions": 2, "kind": "gaussian", "low": [-1.0, -1.0], "high": [1.0, 1.0]}
        return {"observation_dims": None, "image_size": self.image_size, "image_features": 50, **box}

    def contract(self) -> dict[str, Any]:
        names = ("background", "centred", "steps", "speed", "radius_m", "image_size")
        return {"sim": self.name, **{name: getattr(self, name) for name in names}}


class PictureReachVectorEnv(VectorEnv):
    """Vector environment of `PictureReach`; actions are a push per axis in [-1, 1]."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED, "render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, num_envs: int, sim: PictureReach):
        self.num_envs, self.sim = num_envs, sim
        picture = spaces.Box(0, 255, (sim.image_size, sim.image_size, 3), np.uint8)
        self.single_observation_space = spaces.Dict({"image": picture})
        self.single_action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._places = np.zeros((num_envs, 2, 2))  # of the disc and the point, metres
        self._texture = np.zeros((num_envs, _TILES, _TILES, 3), np.float32)
        self._offset, self._drift = np.zeros((num_envs, 2)), np.zeros((num_envs, 2))  # tiles, and per decision
        self._steps = np.zeros(num_envs, dtype=np.int64)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        seeds = seed if isinstance(seed, list | tuple) else [seed] * self.num_envs
        for i in np.flatnonzero(mask):
            rng = np.random.default_rng(seeds[i])
            # the disc is whole in the picture
            reach = 0.0 if self.sim.centred else 1 - self.sim.radius_m
            self._places[i] = rng.uniform(-1, 1, (2, 2)) * [[reach], [1]]
            self._texture[i] = rng.uniform(0, 1, (_TILES, _TILES, 3)) * _BRIGHTEST
            self._offset[i], self._drift[i] = rng.uniform(0, _TILES, 2), rng.uniform(-_DRIFT, _DRIFT, 2)
        self._steps[mask] = 0
        return self._observation(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        over = self._steps >= self.sim.steps
        moved = self._places[:, 1] + self.sim.speed * np.clip(np.asarray(actions, np.float64), -1, 1)
        self._places[:, 1] = np.where(over[:, None], self._places[:, 1], moved.clip(-1, 1))
        self._offset = np.where(over[:, None], self._offset, (self._offset + self._drift) % _TILES)
        self._steps = self._steps + ~over
        distance = np.linalg.norm(self._places[:, 1] - self._places[:, 0], axis=1)
        scores = {"success": (distance <= self.sim.radius_m).astype(np.float64), "distance_m": distance}
        none = np.zeros(self.num_envs, bool)
        return self._observation(), -distance, none, self._steps >= self.sim.steps, {"scores": scores}

    def _observation(self) -> dict[str, Any]:
        size = self.sim.image_size
        if self.sim.background == "moving":
            pictures = sample_texture(self._texture, self._offset, size)
        else:
            pictures = np.broadcast_to(_FLOOR, (self.num_envs, size, size, 3))
        grid = (np.arange(size) + 0.5) / size * 2 - 1
        for k, radius in enumerate((self.sim.radius_m, 0.6 * self.sim.radius_m)):
            place = self._places[:, k]
            gap = np.hypot(
                grid[None, None, :] - place[:, 0, None, None], grid[None, ::-1, None] - place[:, 1, None, None]
            )
            cover = ((radius - gap) * size / 2 + 0.5).clip(0, 1)[..., None]  # share of a pixel
            pictures = pictures + cover * (_PAINT[k] - pictures)
        return {"image": pictures.round().astype(np.uint8)}

    def render(self) -> Any:
        """Pictures uint8 [n, S, S, 3]."""
        return self._observation()["image"]

    def state_dict(self) -> dict[str, Any]:
        names = ("places", "texture", "offset", "drift", "steps")
        return {name: torch.from_numpy(getattr(self, f"_{name}").copy()) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, f"_{name}", value.numpy().copy())


def sample_texture(tiles: np.ndarray, offset: np.ndarray, size: int) -> np.ndarray:
    """Pictures [n, size, size, 3] of periodic textures tiles [n, K, K, 3], moved by offset [n, 2] tiles, bilinear."""
    rows, count = np.arange(len(tiles))[:, None, None], tiles.shape[1]
    at = np.arange(size) * count / size + offset[..., None]  # [n, 2, size] tiles along x and y
    low = np.floor(at).astype(np.int64)
    share = (at - low).astype(np.float32)
    x, y = low[:, 0, None, :], low[:, 1, :, None]
    along_x, along_y = share[:, 0, None, :, None], share[:, 1, :, None, None]

    def row(down: int) -> np.ndarray:
        left, right = (tiles[rows, (y + down) % count, (x + over) % count] for over in (0, 1))
        return left + along_x * (right - left)

    top = row(0)
    return top + along_y * (row(1) - top)
