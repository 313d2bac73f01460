"""An environment and a function that go on when a file is there; needs numpy and gymnasium alone."""

import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces


def wait_for(folder, name):
    """Say that a file is waited for, and wait."""
    (Path(folder) / f"{name} began").touch()
    while not (Path(folder) / f"{name} may end").exists():
        time.sleep(0.01)
    return name


class Waiting(gymnasium.Env):
    """Its steps wait for the file of their number."""

    observation_space = spaces.Box(-1, 100, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, folder: str):
        self.folder = folder

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action):
        wait_for(self.folder, f"step {action}")
        return np.ones(1), 1.0, False, False, {}


class Guest:
    """The environment as a guest."""

    name = "waiting"

    def __init__(self, folder: str):
        self.folder = folder

    def make_env(self):
        return Waiting(self.folder)

    def sizes(self):
        return {"action_dims": 1}

    def contract(self):
        return {"sim": self.name}


def load_wait():
    return wait_for
