"""Catch: a paddle under a falling ball, drawn in pixels, with its objects found in the picture."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sims.objects.extractor import ObjectTracker

SIZE, PADDLE = 12, 3  # pixels of a side, and of the paddle's width
COLOURS = {"ball": (236, 236, 80), "paddle": (80, 160, 236)}
_FLOOR = (20, 20, 20)


class Catch(gymnasium.Env):
    """Catch a ball that falls through a room of 12 x 12 pixels with a paddle at its bottom; ten balls make an episode.

    The ball falls a pixel in a step and moves a pixel or none to a side, from which walls throw it back. Actions: left,
    stay, right. Observation [5]: the ball's column, row and sideways speed, the paddle's column, and the balls that are
    left, in units near 1. The reward of a ball is 1 where the paddle is under it as it arrives. Score "success": the
    share of balls that were caught. `named_state` has the objects of the picture, see `ObjectTracker`.
    """

    metadata = {"render_modes": ["rgb_array"], "mmrl_infos": ["scores"]}
    balls = 10

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.action_space = spaces.Discrete(3)
        self.observation_space = spaces.Box(-1.0, 1.0, (5,), np.float32)
        self.tracker = ObjectTracker(COLOURS)
        self.x = self.y = self.drift = self.paddle = 0  # columns and row, pixels; the paddle's is its left end
        self.fallen = self.caught = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.paddle = int(self.np_random.integers(SIZE - PADDLE + 1))
        self.fallen = self.caught = 0
        self._drop()
        self.tracker.reset(self.draw())
        return self._observation(), {}

    def _drop(self) -> None:
        self.x, self.y = int(self.np_random.integers(SIZE)), 0
        self.drift = int(self.np_random.integers(-1, 2))

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.paddle = min(max(self.paddle + int(action) - 1, 0), SIZE - PADDLE)
        self.x, self.y = self.x + self.drift, self.y + 1
        if not 0 <= self.x < SIZE:
            self.x, self.drift = min(max(self.x, 0), SIZE - 1), -self.drift
        reward, arrived = 0.0, self.y == SIZE - 2  # the row above the paddle's
        if arrived:
            reward = float(self.paddle <= self.x < self.paddle + PADDLE)
            self.fallen, self.caught = self.fallen + 1, self.caught + int(reward)
        self.tracker.update(self.draw())  # with the ball where it arrived
        if arrived and self.fallen < self.balls:
            self._drop()
        over = self.fallen == self.balls
        return self._observation(), reward, over, False, {"scores": {"success": self.caught / self.balls}}

    def _observation(self) -> np.ndarray:
        middle = (SIZE - 1) / 2
        places = (self.x / middle - 1, self.y / middle - 1, self.drift, (self.paddle + 1) / middle - 1)
        return np.array([*places, 1 - self.fallen / self.balls], np.float32)

    def draw(self) -> np.ndarray:
        """The picture uint8 [SIZE, SIZE, 3]."""
        image = np.full((SIZE, SIZE, 3), _FLOOR, np.uint8)
        image[SIZE - 1, self.paddle : self.paddle + PADDLE] = COLOURS["paddle"]
        image[self.y, self.x] = COLOURS["ball"]
        return image

    def render(self) -> np.ndarray:  # type: ignore[override]
        return self.draw().repeat(16, axis=0).repeat(16, axis=1)

    def named_state(self) -> dict[str, Any]:
        """The objects of the picture."""
        return {"objects": self.tracker.objects}
