"""A grid with blocks: a level is the list of the cells of seven blocks, the goal and the agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

SIDE, BLOCKS, MOST_STEPS = 5, 7, 20
CELLS = SIDE * SIDE
VIEW = 2 * SIDE - 1  # cells a side that show the whole maze from everywhere in it
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left: rows, columns
PARAMETERS = (*(f"block_{k}" for k in range(1, BLOCKS + 1)), "goal", "agent")
_BOUNDS = (-0.5, CELLS - 0.5)


def read_level(level: Mapping[str, float]) -> tuple[frozenset[int], int, int]:
    """Blocks, goal and agent of a level as cells from 0 to 24, row by row; the nearest whole numbers.

    Blocks on the goal or the agent are left out. A goal on the agent is moved to the next cell.
    """
    *blocks, goal, agent = (min(max(round(level[name]), 0), CELLS - 1) for name in PARAMETERS)
    if goal == agent:
        goal = (agent + 1) % CELLS
    return frozenset(blocks) - {goal, agent}, goal, agent


def write_level(blocks: Sequence[int], goal: int, agent: int) -> dict[str, float]:
    """The level with these cells; seven blocks, of which several may be one cell."""
    return dict(zip(PARAMETERS, map(float, (*blocks, goal, agent)), strict=True))


def neighbours(cell: int) -> list[int]:
    """The cell after each of the four moves; at the border the cell itself."""
    row, column = divmod(cell, SIDE)
    steps = ((row + down, column + right) for down, right in MOVES)
    return [SIDE * y + x if 0 <= y < SIDE and 0 <= x < SIDE else cell for y, x in steps]


def path_length(blocks: frozenset[int], goal: int, agent: int) -> int | None:
    """Moves of a shortest path around the blocks, by breadth-first search; None without one."""
    reached, border, length = {agent}, {agent}, 0
    while border:
        if goal in border:
            return length
        border = {cell for place in border for cell in neighbours(place)} - blocks - reached
        reached |= border
        length += 1
    return None


class BlockMaze(gymnasium.Env):
    """Walk to the goal around the blocks, within 20 moves.

    Observation [162]: of each of the 9 x 9 cells around the agent, row by row, whether it is a block or beyond the
    border, then of each whether it is the goal. Actions: up, right, down, left; a move into a block or the border
    stays. The reward is 1 - 0.9 t / 20 where move t reaches the goal, which ends the episode, else 0. Score "success":
    it was reached. Blocks may enclose agent or goal: such a level cannot be solved.

    Level: block_1 to block_7, goal and agent, cells from 0 to 24 row by row, rounded to whole numbers.
    """

    metadata = {
        "render_modes": [],
        "mmrl_infos": ["scores"],
        "mmrl_levels": dict.fromkeys(PARAMETERS, _BOUNDS),
    }

    def __init__(self) -> None:
        self.action_space = spaces.Discrete(len(MOVES))
        self.observation_space = spaces.Box(0.0, 1.0, (2 * VIEW * VIEW,), np.float32)
        self.blocks: frozenset[int] = frozenset()
        self.goal, self.agent, self.moves = 0, CELLS - 1, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if level := (options or {}).get("level"):
            self.blocks, self.goal, self.agent = read_level(level)
        self.moves = 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.moves += 1
        place = neighbours(self.agent)[int(action)]
        if place not in self.blocks:
            self.agent = place
        success = self.agent == self.goal
        reward = 1 - 0.9 * self.moves / MOST_STEPS if success else 0.0
        return self._observation(), reward, success, False, {"scores": {"success": float(success)}}

    def _observation(self) -> np.ndarray:
        row, column = divmod(self.agent, SIDE)
        view = np.zeros((2, VIEW, VIEW), np.float32)
        view[0] = 1.0
        top, left = SIDE - 1 - row, SIDE - 1 - column  # of the maze in the view, whose middle is the agent
        maze = view[:, top : top + SIDE, left : left + SIDE]
        maze[0] = 0.0
        for cell in self.blocks:
            maze[0, cell // SIDE, cell % SIDE] = 1.0
        maze[1, self.goal // SIDE, self.goal % SIDE] = 1.0
        return view.reshape(-1)
