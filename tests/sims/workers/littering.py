"""An environment that starts a process of its own, as simulators with a server or a display do."""

import subprocess
import sys
import time

import gymnasium
import numpy as np
from gymnasium import spaces

GO, HANG = range(2)


class Littering(gymnasium.Env):
    """Its observation is the number of a process that it started and never ends.

    Args:
        daemon: whether that process leads a session of its own and lost its parent.
    """

    observation_space = spaces.Box(0, 2**31, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, daemon: bool = False):
        program = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
        if daemon:
            program = f"import os\nif os.fork(): os._exit(0)\nos.setsid()\n{program}"
        started = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        self.number = int(started.stdout.readline())

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.array([float(self.number)]), {}

    def step(self, action):
        if action == HANG:
            time.sleep(1000)
        return np.array([float(self.number)]), 0.0, False, False, {}


gymnasium.register("Littering-v0", Littering)
