"""T-maze: a signal at the start of a corridor says which way to turn at its end."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

NORTH, EAST, SOUTH, WEST = range(4)
CORRIDOR, JUNCTION = (1, 0, 1), (0, 1, 0)
SIGNALS = {NORTH: (0, 1, 1), SOUTH: (1, 1, 0)}


class TMaze(gymnasium.Env):
    """Walk east along a corridor and turn at its end to the side that the first observation named.

    Observations have three bits: the signal in the first field, then 101 in the corridor and 010 at the junction, so
    that without a memory the turn is a guess: the return is 4 or -0.1, 1.95 on average. The reward is 4 for the right
    turn and -0.1 for the wrong one, and -0.1 for a step against a wall. Actions are north, east, south and west.
    Source: Bakker, Reinforcement Learning with Long Short-Term Memory, 2001, section 4.1.

    Args:
        length: fields of the corridor before the junction.
    """

    metadata = {"render_modes": []}

    def __init__(self, length: int = 5):
        if length < 1:
            raise ValueError(f"sim.kwargs.length must be at least 1, got {length}")
        self.length = length
        self.action_space = spaces.Discrete(4)
        self.observation_space = spaces.Box(0.0, 1.0, (3,), np.float32)
        self.place, self.goal = 0, NORTH

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.goal = 0, (NORTH, SOUTH)[int(self.np_random.integers(2))]
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        at_junction = self.place == self.length
        if at_junction and action in (NORTH, SOUTH):
            return self._observation(), 4.0 if action == self.goal else -0.1, True, False, {}
        before = self.place
        self.place = min(max(before + (action == EAST) - (action == WEST), 0), self.length)
        return self._observation(), 0.0 if self.place != before else -0.1, False, False, {}

    def _observation(self) -> np.ndarray:
        bits = SIGNALS[self.goal] if self.place == 0 else JUNCTION if self.place == self.length else CORRIDOR
        return np.array(bits, np.float32)
