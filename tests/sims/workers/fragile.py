"""Environments whose actions make their process die, hang or raise; needs numpy and gymnasium alone."""

import os
import signal
import time

import gymnasium
import numpy as np
from gymnasium import spaces

GO, DIE, HANG, RAISE, LEAVE = range(5)
IMPOSSIBLE = 77  # a seed


class Fragile(gymnasium.Env):
    """Counts steps from a seeded number; an episode has 6 steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5, "mmrl_infos": ["scores", "task"]}
    observation_space = spaces.Dict(
        {"state": spaces.Box(-1, 100, (2,), np.float64), "instruction": spaces.Text(20, charset="stepfrom 0123456789")}
    )
    action_space = spaces.Discrete(5)
    render_mode = "rgb_array"

    def __init__(self):
        self.failed = False  # a step raised

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.failed or seed == IMPOSSIBLE:
            raise ValueError("no joint to begin with")
        self.state = np.array([self.np_random.integers(10), 0.0])
        return self._observe(), {"task": "count"}

    def step(self, action):
        if action == DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == HANG:
            time.sleep(1000)
        if action == LEAVE:
            os._exit(3)
        if action == RAISE:
            self.failed = True
            raise ValueError("a broken joint")
        self.state[1] += 1
        over = self.state[1] >= 6
        return self._observe(), float(self.state[0]), False, bool(over), {"scores": {"steps": self.state[1]}}

    def _observe(self):
        return {"state": self.state.copy(), "instruction": f"step from {int(self.state[0])}"}

    def render(self, size=4):
        size = size if size > 1000 else 4
        return np.full((size, size, 3), int(self.state.sum()), np.uint8)


class Guest:
    """The environments as a guest of two tasks."""

    name = "fragile"
    tasks = ("left", "right")

    def __init__(self, size: int = 1):
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        self.size = size

    def make_env(self):
        return Fragile()

    def sizes(self):
        return {"action_dims": self.size}

    def contract(self):
        return {"sim": self.name, "size": self.size}

    def expert(self, env):
        return np.float32(GO)


gymnasium.register("Fragile-v0", Fragile)
