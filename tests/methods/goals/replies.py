"""Environments side by side whose observations, ends and errors are a list."""

from types import SimpleNamespace

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv


class ListedEnv(VectorEnv):
    """Environments that show the next of a list of rows, whatever is done, and note the actions.

    Args:
        rows: of (shown, terminated, truncated, errors), the first of which is shown by the first reset.
    """

    def __init__(self, *rows):
        self.rows, self.actions = list(rows), []
        self.num_envs = len(rows[0][0])
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_action_space = spaces.Discrete(3)
        box = spaces.Box(0, 255, (1, 1, 3))
        self.single_observation_space = spaces.Dict({"image": box, "instruction": spaces.Text(9)})

    def captions(self):
        return list(self.shown)

    def _observe(self):
        image = np.zeros((self.num_envs, 1, 1, 3))
        if not isinstance(self.shown[0], str):
            image += np.array(self.shown, float)[:, None, None, None]
        return {"image": image, "instruction": ["go"] * self.num_envs}

    def reset(self, *, seed=None, options=None):
        self.shown = self.rows.pop(0)[0]
        return self._observe(), {}

    def step(self, actions):
        self.actions.append(np.array(actions).tolist())
        self.shown, terminated, truncated, errors = self.rows.pop(0)
        ends = np.array(terminated, bool), np.array(truncated, bool)
        return self._observe(), np.full(self.num_envs, 7.0), *ends, {"error": np.array(errors, object)}


def build_sim(env, **attributes):
    return SimpleNamespace(make=lambda count: env, **attributes)
