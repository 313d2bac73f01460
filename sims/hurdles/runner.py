"""Runner over hurdles: a level has their height and spacing, and part of the level space is out of reach."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

STEP_S, GRAVITY = 0.1, 10.0  # seconds, metres per second squared
MOST_SPEED, MOST_PUSH, MOST_JUMP = 5.0, 10.0, 6.0  # m/s, m/s^2, m/s
RUN_UP = 4.0  # metres before the first hurdle and after the last


class Hurdles(gymnasium.Env):
    """Run along a line over five hurdles, within 15 seconds.

    A step takes 0.1 s. Actions in [-1, 1]: push forwards or back, on the ground only, and jump, where a positive
    number on the ground gives that fraction of 6 m/s upwards; so no jump is higher than 1.8 m. In the air the speed
    stays. A runner who is below the top of a hurdle hits it, and goes back to shortly after the hurdle before, at rest.

    Observation [7]: distance to the next hurdle, to the one after it, height of the hurdles, own height above the
    ground, speed forwards and upwards, whether the runner stands on the ground; in units near 1. The reward is new
    progress along the track, 10 for all of it; the end of the track ends the episode. Score "success": it was reached.

    Level: height_m and spacing_m. A hurdle above 1.8 m cannot be passed, which is 70 % of the declared levels; between
    close high ones the runner has to be slow.
    """

    metadata = {
        "render_modes": [],
        "mmrl_infos": ["scores"],
        "mmrl_levels": {"height_m": (0.0, 6.0), "spacing_m": (1.0, 8.0)},
    }
    hurdles = 5

    def __init__(self) -> None:
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = spaces.Box(-10.0, 10.0, (7,), np.float32)
        self.height, self.spacing = 0.5, 4.0
        self.x = self.y = self.speed = self.climb = self.furthest = self.origin = self.begin = 0.0
        self.passed = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        level = (options or {}).get("level", {})
        self.height, self.spacing = level.get("height_m", 0.5), level.get("spacing_m", 4.0)
        self.origin = float(self.np_random.uniform(0.0, 1.0))
        self.x = self.furthest = self.begin = self.origin
        self.y = self.speed = self.climb = 0.0
        self.passed = 0
        return self._observation(), {}

    @property
    def track(self) -> float:
        """Length of the track in metres."""
        return 2 * RUN_UP + (self.hurdles - 1) * self.spacing

    def _hurdle(self, number: int) -> float:
        """Place of a hurdle in metres; of those after the last one, far away."""
        return RUN_UP + number * self.spacing if number < self.hurdles else self.track + 10.0

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        push, jump = (min(max(float(number), -1.0), 1.0) for number in action)
        if self.y <= 0.0:
            self.speed = min(max(self.speed + push * MOST_PUSH * STEP_S, 0.0), MOST_SPEED)
            self.climb = max(jump, 0.0) * MOST_JUMP
        x, y = self.x, self.y
        # exact parabola over the step
        self.x = x + self.speed * STEP_S
        self.y = max(y + self.climb * STEP_S - GRAVITY * STEP_S**2 / 2, 0.0)
        climb = self.climb
        self.climb = climb - GRAVITY * STEP_S if self.y > 0.0 else 0.0
        while self.x >= (place := self._hurdle(self.passed)):
            after = (place - x) / self.speed  # seconds into the step
            if max(y + climb * after - GRAVITY * after**2 / 2, 0.0) < self.height:
                self.x, self.y, self.speed, self.climb = self.begin, 0.0, 0.0, 0.0
                break
            self.passed += 1
            self.begin = place + min(0.5, self.spacing / 4)
        reward = max(min(self.x, self.track) - self.furthest, 0.0) / (self.track - self.origin) * 10.0
        self.furthest = max(self.furthest, min(self.x, self.track))
        done = self.x >= self.track
        return self._observation(), reward, done, False, {"scores": {"success": float(done)}}

    def _observation(self) -> np.ndarray:
        ahead = [min(self._hurdle(self.passed + k) - self.x, 20.0) / 4 for k in range(2)]
        state = [*ahead, self.height / 2, self.y, self.speed / MOST_SPEED, self.climb / MOST_JUMP, float(self.y <= 0.0)]
        return np.array(state, np.float32)
