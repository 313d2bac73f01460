"""PushT as a guest: needs gym-pusht, numpy and gymnasium."""

from __future__ import annotations

import functools
import os
from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np

from sims.host.chunk_env import ChunkEnv
from sims.pusht.expert import StrokeExpert
from sims.pusht.physics import read_state
from sims.pusht.planner import StrokePlanner, decode_action
from sims.pusht.sizes import ACTION, HALF, PROPRIO, sizes

CONTROL_HZ = 10


class PushT:
    """Push a block onto its goal; `sims.pusht.sim.PushTSim` describes the arguments."""

    name = "pusht"

    def __init__(self, chunk: int = 1, max_steps: int = 300, image_size: int = 0):
        self.chunk, self.max_steps, self.image_size = chunk, max_steps, image_size

    def make_env(self) -> PushTEnv:
        return PushTEnv(self)

    def sizes(self) -> dict[str, Any]:
        return sizes(self.chunk)

    def contract(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in ("chunk", "max_steps", "image_size")}
        return {"sim": self.name, **options, **{package: version(package) for package in ("gym-pusht", "pymunk")}}

    def expert(self, env: gymnasium.Env) -> np.ndarray:
        """The planned next action, float32 [1, 2]; a plan is made of single control steps."""
        if self.chunk != 1:
            raise ValueError(f"PushT's expert plans single control steps: set sim.chunk=1, not {self.chunk}")
        return env.unwrapped.plan()[None]  # type: ignore[attr-defined]


class PushTEnv(ChunkEnv):
    """One episode after the other, from the package's random states; its coverage of the goal is a score.

    Args:
        options: of the simulator.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": CONTROL_HZ}

    def __init__(self, options: PushT):
        super().__init__(options.chunk, ACTION, PROPRIO, options.max_steps, options.image_size)
        self._env = make_package_env()

    def begin(self, seed: int) -> str:
        self._env.reset(seed=seed)
        self._coverage, self._seed = 0.0, seed
        self._expert: StrokeExpert | None = None
        self.instruction = "push the block onto the goal"
        return PushT.name

    def play(self, action: np.ndarray) -> tuple[bool, bool]:
        _, _, success, _, report = self._env.step(decode_action(action))
        self._coverage = float(report["coverage"])
        return bool(success), False

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        info["scores"]["coverage"] = self._coverage
        return observation, reward, terminated, truncated, info

    def read(self) -> np.ndarray:
        state = read_state(self._env)
        *place, angle = state.block
        places = np.array([*state.pusher, *place]) / HALF - 1
        return np.append(places, (np.sin(angle), np.cos(angle)))

    def render(self, size: int = 256) -> np.ndarray:  # type: ignore[override]
        """The package's image, uint8 [size, size, 3]."""
        self._env.observation_width = self._env.observation_height = size
        return self._env._render()

    def plan(self) -> np.ndarray:
        """The expert's next action, float32 [2]."""
        if self._expert is None:
            self._expert = StrokeExpert(build_planner(), self._seed)
        return self._expert.act(read_state(self._env))


def make_package_env() -> Any:
    """The package's environment."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    from gym_pusht.envs import PushTEnv as PackageEnv

    return PackageEnv()


@functools.cache
def build_planner() -> StrokePlanner:
    """The planner of this process; its table of strokes takes a second or two."""
    return StrokePlanner(make_package_env())
