"""Three rooms in a row: a dark one, one whose floor changes its colours, and one with the switch that stops them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from mmrl.core.errors import check_at_least

WALL, FLOOR, DARK, RUNNING, STOPPED, COLOURS = 0, 1, 2, 3, 4, 5
"""Classes of a seen cell; from COLOURS on, one for each colour."""
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left: rows, columns
TOGGLE = len(MOVES)


class NoisyRooms(gymnasium.Env):
    """Walk through a dark, a noisy and a plain room, without any reward.

    Each room has `side` x `side` cells; doors of one cell in the middle row join them. The agent starts in the middle
    of the noisy room, whose cells get new random colours after every action while the noise runs. The switch is in the
    far corner of the plain room: there the action 4 stops the noise, or lets it run again; elsewhere it does nothing.
    Actions 0 to 3 go up, right, down and left.

    Observation [9]: the classes of the 3 x 3 cells around the agent, row by row: 0 wall, 1 floor, 2 dark, 3 and 4 the
    switch while the noise runs and while it is stopped, then the colours. In the dark room every cell is dark, walls
    too. A state is the agent's cell and the switch; score "visited": share of all states that the episode has been in.

    Args:
        side: cells of a room's side, an odd number.
        colours: of the noisy cells.
    """

    metadata = {"render_modes": [], "mmrl_infos": ["scores"]}

    def __init__(self, side: int = 3, colours: int = 4):
        check_at_least(3, "sim.kwargs", side=side)
        check_at_least(2, "sim.kwargs", colours=colours)
        if side % 2 == 0:
            raise ValueError(f"sim.kwargs.side must be odd, so that a room has a middle row for the doors, got {side}")
        self.side, self.colours = side, colours
        self.classes = COLOURS + colours
        self.action_space = spaces.Discrete(len(MOVES) + 1)
        self.observation_space = spaces.MultiDiscrete(np.full(9, self.classes))
        middle, width = side // 2, 3 * side + 2
        self.free = np.ones((side, width), bool)
        self.free[:, [side, 2 * side + 1]] = False
        self.free[middle, [side, 2 * side + 1]] = True
        self.dark, self.noisy = slice(0, side), slice(side + 1, 2 * side + 1)  # columns
        self.switch, self.start = (side - 1, width - 1), (middle, side + 1 + middle)
        self.states = 2 * int(self.free.sum())

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.agent, self.running = self.start, True
        self.visited = {(self.agent, self.running)}
        self.colour = np.zeros((self.side, self.side), int)
        self._recolour()
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if action < TOGGLE:
            row, column = (at + move for at, move in zip(self.agent, MOVES[int(action)]))
            if 0 <= row < self.side and 0 <= column < self.free.shape[1] and self.free[row, column]:
                self.agent = (row, column)
        elif self.agent == self.switch:
            self.running = not self.running
        self._recolour()
        self.visited.add((self.agent, self.running))
        return self._observation(), 0.0, False, False, {"scores": {"visited": len(self.visited) / self.states}}

    def _recolour(self) -> None:
        if self.running:
            self.colour = self.np_random.integers(self.colours, size=self.colour.shape)

    def _observation(self) -> np.ndarray:
        row, column = self.agent
        if column < self.dark.stop:
            return np.full(9, DARK)
        cells = np.where(self.free, FLOOR, WALL)
        cells[:, self.dark] = DARK
        cells[:, self.noisy] = COLOURS + self.colour
        cells[self.switch] = RUNNING if self.running else STOPPED
        padded = np.pad(cells, 1, constant_values=WALL)
        return padded[row : row + 3, column : column + 3].reshape(-1)
