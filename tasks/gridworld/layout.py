"""Layouts of a gridworld: rooms with locked doors or a maze, moves, shortest paths, and their images."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tasks.mazes.maze import MOVES, Cell, Maze, draw_doors

WALL, FLOOR, GOAL, AGENT, HIDDEN = "#", ".", "G", "@", "?"
KEYS = "abc"
_COLOURS = {
    WALL: (24, 24, 24),
    FLOOR: (255, 255, 255),
    GOAL: (40, 170, 60),
    AGENT: (220, 40, 40),
    HIDDEN: (128, 128, 128),
    **dict(zip(KEYS, ((240, 200, 40), (60, 120, 230), (190, 80, 200)))),
    **dict(zip(KEYS.upper(), ((150, 120, 10), (20, 50, 130), (100, 30, 110)))),
}


class State(NamedTuple):
    """Cell of the agent and the keys that it carries."""

    cell: Cell
    keys: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Layout:
    """A grid of characters: # wall, . floor, G goal, a to c keys, A to C the doors that they open."""

    lines: tuple[str, ...]
    start: Cell

    def move(self, state: State, letter: str) -> State:
        """Walk one cell up, down, left or right (U, D, L, R); walls and doors without their key stop the agent.

        A key is taken by walking onto it.
        """
        cell = state.cell[0] + MOVES[letter][0], state.cell[1] + MOVES[letter][1]
        mark = self.lines[cell[0]][cell[1]]
        if mark == WALL or (mark.lower() in KEYS and mark.isupper() and mark.lower() not in state.keys):
            return state
        return State(cell, state.keys | {mark} if mark in KEYS else state.keys)

    def is_goal(self, state: State) -> bool:
        return self.lines[state.cell[0]][state.cell[1]] == GOAL

    def solve(self, state: State) -> str | None:
        """Return a shortest path to the goal in letters, the first in the order D, L, R, U; None if there is none."""
        states, queue = {state}, deque([(state, "")])
        while queue:
            here, path = queue.popleft()
            if self.is_goal(here):
                return path
            for letter in "DLRU":
                following = self.move(here, letter)
                if following not in states:
                    states.add(following)
                    queue.append((following, path + letter))
        return None

    def characters(self, state: State, view: int | None = None) -> list[str]:
        """Draw the grid with the agent as @ and without the keys that it carries.

        Args:
            state: of the agent.
            view: cells farther from the agent than this, in rows or columns, are not drawn, and cells of the view
                outside of the grid are walls; None draws the whole grid.
        """
        row, column = state.cell
        grid = [[FLOOR if mark in state.keys else mark for mark in line] for line in self.lines]
        grid[row][column] = AGENT
        if view is None:
            return ["".join(line) for line in grid]
        rows, columns = range(row - view, row + view + 1), range(column - view, column + view + 1)
        inside = {(r, c) for r in range(len(grid)) for c in range(len(grid[0]))}
        return ["".join(grid[r][c] if (r, c) in inside else WALL for c in columns) for r in rows]


def render(characters: list[str], size: int) -> np.ndarray:
    """Draw characters as colored blocks in the middle of a square image, uint8 [size, size, 3]."""
    blocks = np.array([[_COLOURS[mark] for mark in line] for line in characters], np.uint8)
    scale = size // max(blocks.shape[:2])
    tiles = blocks.repeat(scale, axis=0).repeat(scale, axis=1)
    image = np.full((size, size, 3), _COLOURS[WALL], np.uint8)
    row, column = (size - tiles.shape[0]) // 2, (size - tiles.shape[1]) // 2
    image[row : row + tiles.shape[0], column : column + tiles.shape[1]] = tiles
    return image


def draw_rooms(rng: np.random.Generator, rows: int, columns: int, wall_fraction: float, doors: int) -> Layout | None:
    """Draw doors + 1 rooms side by side, each locked from the one before it; the key lies in a room before its door.

    Args:
        rng: of the draw.
        rows: lines with the outer walls.
        columns: characters of a line with the outer walls.
        wall_fraction: probability of a wall in each cell inside of a room.
        doors: locked doors, 0 to 3.

    Returns:
        The layout, whose goal may be out of reach; None where a room has no free cell left.
    """
    grid = [[WALL if rng.random() < wall_fraction else FLOOR for _ in range(columns)] for _ in range(rows)]
    cuts = [round((i + 1) * (columns - 1) / (doors + 1)) for i in range(doors)]
    for r in range(rows):
        for c in range(columns):
            if r in (0, rows - 1) or c in (0, *cuts, columns - 1):
                grid[r][c] = WALL
    walls = [0, *cuts, columns - 1]

    def take(first: int, last: int) -> Cell | None:
        free = [(r, c) for r in range(rows) for c in range(walls[first] + 1, walls[last + 1]) if grid[r][c] == FLOOR
                and c not in cuts]  # fmt: skip
        return free[int(rng.integers(len(free)))] if free else None

    for i, cut in enumerate(cuts):
        key = take(0, i)
        if key is None:
            return None
        grid[key[0]][key[1]] = KEYS[i]
        grid[int(rng.integers(1, rows - 1))][cut] = KEYS[i].upper()
    goal = take(doors, doors)
    if goal is None:
        return None
    grid[goal[0]][goal[1]] = GOAL
    start = take(0, 0)
    return None if start is None else Layout(tuple("".join(line) for line in grid), start)


def draw_maze(rng: np.random.Generator, rows: int, columns: int) -> Layout:
    """Draw a maze whose passages form a uniform spanning tree; rows and columns are odd and count the walls."""
    cells = [(r, c) for r in range(rows // 2) for c in range(columns // 2)]
    doors = draw_doors(rng, rows // 2, columns // 2, 0)
    start, goal = (cells[int(i)] for i in rng.choice(len(cells), size=2, replace=False))
    lines = Maze(rows // 2, columns // 2, doors, start, goal).characters()
    return Layout(tuple(line.replace("S", FLOOR) for line in lines), (2 * start[0] + 1, 2 * start[1] + 1))
