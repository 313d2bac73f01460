"""Environments whose action is a chunk of control steps."""

from __future__ import annotations

import string
from abc import ABC, abstractmethod
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class ChunkEnv(gymnasium.Env, ABC):
    """Base class of single environments: a chunk is executed open loop until the first success or the end.

    Observations: "proprio" float32 [proprio_dims], "instruction", and "image" uint8 [S, S, 3] where asked for. The
    reward is 1 at the success, which ends the episode.

    Args:
        chunk: control steps of an action.
        action_dims: numbers of a control step's action, each in [-1, 1].
        proprio_dims: numbers of the observation.
        max_steps: control steps after which an episode is cut.
        image_size: pixels a side of the image; 0: none.
    """

    render_mode = "rgb_array"

    def __init__(self, chunk: int, action_dims: int, proprio_dims: int, max_steps: int, image_size: int):
        if min(chunk, max_steps) < 1 or image_size < 0:
            raise ValueError("sim.chunk and sim.max_steps must be at least 1, sim.image_size at least 0")
        parts: dict[str, Any] = {
            "proprio": spaces.Box(-np.inf, np.inf, (proprio_dims,), np.float32),
            "instruction": spaces.Text(max_length=200, charset=string.ascii_letters + string.digits + " "),
        }
        if image_size:
            parts["image"] = spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
        self.observation_space = spaces.Dict(parts)
        self.action_space = spaces.Box(-1, 1, (chunk, action_dims), np.float32)
        self.max_steps, self.image_size, self.instruction = max_steps, image_size, ""
        self._steps = 0

    @abstractmethod
    def begin(self, seed: int) -> str:
        """Make the initial state that follows from the seed alone, set `instruction`, and give the task's name."""

    @abstractmethod
    def play(self, action: np.ndarray) -> tuple[bool, bool]:
        """Execute one control step [action_dims]: whether it reached the goal, and whether nothing can be done now."""

    @abstractmethod
    def read(self) -> np.ndarray:
        """The observation's numbers, [proprio_dims]."""

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self._steps, self._task = 0, self.begin(int(self.np_random.integers(2**31)) if seed is None else seed)
        return self._observe(), {"task": self._task}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        executed, success, failed = 0, False, False
        for part in np.clip(np.asarray(action, np.float64), -1, 1):
            success, failed = self.play(part)
            self._steps, executed = self._steps + 1, executed + 1
            if success or failed or self._steps >= self.max_steps:
                break
        info = {"task": self._task, "executed": executed, "scores": {"success": float(success)}}
        over = success or failed
        return self._observe(), float(success), over, not over and self._steps >= self.max_steps, info

    def _observe(self) -> dict[str, Any]:
        observation: dict[str, Any] = {"proprio": self.read().astype(np.float32), "instruction": self.instruction}
        if self.image_size:
            observation["image"] = self.render(self.image_size)
        return observation

    @abstractmethod
    def render(self, size: int = 256) -> np.ndarray:  # type: ignore[override]
        """Image of the scene, uint8 [size, size, 3]."""
