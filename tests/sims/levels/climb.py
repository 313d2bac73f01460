"""An environment that declares levels: climb a slope of so many steps, with a gift for each."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Climb(gymnasium.Env):
    """An episode of round(steps) steps, each with the reward `gift`; the observation is the level itself."""

    metadata = {"render_modes": [], "mmrl_levels": {"steps": (1, 5), "gift": (-1.0, 1.0)}}
    observation_space = spaces.Box(-10, 10, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, fault: bool = False):
        self.fault = fault

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.level = options["level"]
        self.time, self.noise = 0, float(self.np_random.random())
        return self._observation(), {}

    def step(self, action):
        self.time += 1
        if self.fault and self.level["gift"] > 0.5:
            raise RuntimeError("the slope slid")
        over = self.time >= round(self.level["steps"])
        # "scores" is not declared as mmrl's, so it is dropped
        return self._observation(), self.level["gift"], over, False, {"scores": "mine"}

    def _observation(self):
        return np.array([self.level["steps"], self.level["gift"], self.noise], np.float32)


gymnasium.register("tests/Climb-v0", entry_point=Climb)
