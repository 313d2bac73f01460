"""Environments whose process dies or hangs in a reset or while they are made; needs numpy and gymnasium alone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces

DEADLY = 13
"""A seed."""


class Dying(gymnasium.Env):
    """Counts steps from its seed; its observation also has the number of a process that it started.

    Args:
        deaths: a file with as many letters as resets died so far.
        most: resets from the deadly seed that die, in all processes.
        how: "die" or "hang".
    """

    observation_space = spaces.Dict(
        {
            "state": spaces.Box(-1, 2**31, (2,), np.float64),
            "instruction": spaces.Text(20, charset="stepfrom 0123456789"),
        }
    )
    action_space = spaces.Discrete(2)

    def __init__(self, deaths: str, most: int = 1, how: str = "die"):
        self.deaths, self.most, self.how = Path(deaths), most, how
        program = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
        self.started = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        self.number = int(self.started.stdout.readline())

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed == DEADLY and len(self.deaths.read_text()) < self.most:
            self.deaths.write_text(self.deaths.read_text() + "x")
            if self.how == "hang":
                time.sleep(1000)
            os.kill(os.getpid(), signal.SIGKILL)
        self.seed, self.steps = seed, 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        return self.observe(), 1.0, False, False, {}

    def observe(self):
        state = np.array([self.seed + self.steps, self.number], np.float64)
        return {"state": state, "instruction": f"step from {self.seed}"}


class Guest:
    """The environments as a guest; `how="make"` dies while one is made."""

    name = "dying"

    def __init__(self, deaths: str, most: int = 1, how: str = "die"):
        self.arguments = (deaths, most, how)

    def make_env(self):
        if self.arguments[2] == "make":
            os._exit(7)
        return Dying(*self.arguments)

    def sizes(self):
        return {"action_dims": 1}

    def contract(self):
        return {"sim": self.name}
