"""LIBERO's tasks as a gymnasium environment."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sims.host.states import state_of
from sims.libero.domain import CONTROL_HZ
from sims.libero.scene import OPEN, EpisodeState
from sims.libero.sizes import ACTION, PROPRIO

if TYPE_CHECKING:
    from sims.libero.expert import PickAndPlace
    from sims.libero.guest import Libero

CAMERA_NAMES = {"agent": "agentview", "wrist": "robot0_eye_in_hand"}
_LARGE = 128
_STILL = np.array([0, 0, 0, 0, 0, 0, OPEN])


class LiberoEnv(gymnasium.Env):
    """One episode after the other, each in the stored state that its seed selects.

    Observations: "proprio" float32 [8], "instruction", and "image" of the first camera, "image_2" of the second,
    uint8 [S, S, 3], where asked for. An episode terminates when the package's own check says that the goal is reached.

    Args:
        world: with the options.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": CONTROL_HZ}
    render_mode = "rgb_array"

    def __init__(self, world: Libero):
        self.world = world
        parts: dict[str, Any] = {
            "proprio": spaces.Box(-np.inf, np.inf, (PROPRIO,), np.float32),
            "instruction": spaces.Text(max_length=200, charset=string.ascii_letters + string.digits + " ,.'-"),
        }
        self._images = dict(zip(("image", "image_2"), world.cameras)) if world.image_size else {}
        for name in self._images:
            parts[name] = spaces.Box(0, 255, (world.image_size, world.image_size, 3), np.uint8)
        self.observation_space = spaces.Dict(parts)
        self.action_space = spaces.Box(-1, 1, (world.chunk, ACTION), np.float32)
        self.playing, self.episode, self.expert = "", None, None  # type: ignore[assignment]
        self._steps = 0

    playing: str
    """The task."""
    episode: EpisodeState
    expert: PickAndPlace | None

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        seed = int(self.np_random.integers(2**31)) if seed is None else seed
        self.playing, number = state_of(seed, self.world.states)
        self.episode = self.world.scene(self.playing).begin(number)
        self.expert, self._steps = None, 0
        for _ in range(self.world.settle_steps):
            self.episode.step(_STILL)
        return self._observe(), {"task": self.playing, "state": number}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        executed, success = 0, False
        for part in np.clip(np.asarray(action, np.float64), -1, 1):
            success = self.episode.step(part)
            self._steps, executed = self._steps + 1, executed + 1
            if success or self._steps >= self.world.max_steps:
                break
        info = {"task": self.playing, "executed": executed, "scores": {"success": float(success)}}
        return self._observe(), float(success), success, not success and self._steps >= self.world.max_steps, info

    def _observe(self) -> dict[str, Any]:
        observation: dict[str, Any] = {
            "proprio": self.episode.read_robot(),
            "instruction": self.episode.scene.sentence,
        }
        for name, camera in self._images.items():
            observation[name] = turn(self._draw(camera, self.world.image_size), self.world.orientation)
        return observation

    def _draw(self, camera: str, size: int) -> np.ndarray:
        self.episode.activate()
        return self.episode.scene.camera(CAMERA_NAMES[camera], size).draw(self.episode.scene.data)

    def render(self, size: int = 256) -> np.ndarray:  # type: ignore[override]
        """Upright image of the camera in front of the robot, uint8 [size, size, 3]; rays are cast for half the pixels
        a side where it is large, as each costs about five microseconds."""
        halved = self.world.renderer == "ray" and size > _LARGE and size % 2 == 0
        image = self._draw("agent", size // 2 if halved else size)
        return image.repeat(2, axis=0).repeat(2, axis=1) if halved else image


def turn(image: np.ndarray, orientation: str) -> np.ndarray:
    """An upright image as it is, as robosuite gives it (upside down), or that rotated by 180 degrees (mirrored)."""
    if orientation == "upright":
        return image
    return np.ascontiguousarray(image[::-1] if orientation == "robosuite" else image[:, ::-1])
