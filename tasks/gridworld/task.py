"""Gridworld: walk to the goal, in text, in words or in images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mmrl.core.text_environment import TextEnvironment, TextStep
from mmrl.core.types import Prompt
from tasks.environment import TextEnvironmentTask
from tasks.gridworld.layout import FLOOR, GOAL, KEYS, WALL, Layout, State, draw_maze, draw_rooms, render
from tasks.mazes.maze import MOVES

Form = Literal["text", "words", "image", "both"]
_DIRECTIONS = {"U": "up", "D": "down", "L": "left", "R": "right"}


@dataclass(frozen=True)
class GridWorld(TextEnvironmentTask):
    """Gridworld: walk with U, D, L and R to the goal G; keys a to c open the doors A to C.

    The form "words" is that of LMRL-Gym's maze: the positions and the walls beside the agent.
    Source: LMRL-Gym: Benchmarks for Multi-Turn Reinforcement Learning with Language Models, 2023, arXiv:2311.18232.

    Args:
        rows: lines with the outer walls.
        columns: characters of a line with the outer walls.
        layout: "rooms" side by side, or a "maze", whose rows and columns are odd.
        wall_fraction: probability of a wall in each cell of the rooms.
        doors: locked doors between rooms, 0 to 3.
        view: how far the agent sees in rows and columns; None for all.
        form: the grid as "text", an "image" or "both", or the positions in "words".
        position: whether words say where the agent is.
        size: edge of the images, pixels.
        step_cost: is subtracted from the reward of every action; the goal's reward is 1.
    """

    name = "gridworld"
    rows: int = 7
    columns: int = 7
    layout: Literal["rooms", "maze"] = "rooms"
    wall_fraction: float = 0.1
    doors: int = 0
    view: int | None = None
    form: Form = "text"
    position: bool = True
    size: int = 32
    step_cost: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        odd = self.rows % 2 == self.columns % 2 == 1
        if self.layout == "maze" and (not odd or self.doors or min(self.rows, self.columns) < 5):
            raise ValueError(
                f"task gridworld: a maze has no locked doors and an odd number of rows and columns from 5 on, "
                f"got {self.doors} doors in {self.rows} x {self.columns}"
            )
        if self.rows < 3 or self.columns < 3 + 2 * self.doors or not 0 <= self.doors <= len(KEYS):
            raise ValueError(
                f"task gridworld: {self.rows} x {self.columns} is too small for {self.doors} doors of at most "
                f"{len(KEYS)}; enlarge rows or columns"
            )
        if not 0 <= self.wall_fraction < 1 or (self.view is not None and self.view < 1):
            raise ValueError(
                f"task gridworld: need 0 <= wall_fraction < 1 and view >= 1, got {self.wall_fraction} and {self.view}"
            )
        if self.size < max(self.rows, self.columns) or self.size < 2 * (self.view or 0) + 1:
            raise ValueError(f"task gridworld: size={self.size} pixels are fewer than the cells of a line; raise size")

    def draw(self, rng: np.random.Generator) -> Layout | None:
        if self.layout == "maze":
            grid = draw_maze(rng, self.rows, self.columns)
        else:
            grid = draw_rooms(rng, self.rows, self.columns, self.wall_fraction, self.doors)
        path = None if grid is None else grid.solve(State(grid.start))
        return grid if path and len(path) <= self.max_turns else None

    def split_key(self, problem: Layout) -> str:
        return repr(problem)

    def explain(self, problem: Layout) -> str:
        doors = " Walk onto keys (a) to take them; they open doors (A)." if self.doors else ""
        return f"Walk to G.{doors} Actions: U, D, L, R."

    def make_environment(self) -> GridEnvironment:
        return GridEnvironment(self)


class GridEnvironment(TextEnvironment):
    """One agent on one layout.

    Scores: exact (1 at the goal) and efficiency (moves of the shortest path over moves made, at the goal).
    """

    def __init__(self, task: GridWorld):
        self.task = task

    def start(self, prompt: Prompt, seed: int) -> TextStep:
        self.layout: Layout = prompt.info["problem"]
        self.state, self.moves = State(self.layout.start), 0
        self.shortest = len(self.layout.solve(self.state) or "")
        return self._observe()

    def apply(self, action: str) -> TextStep:
        self.moves += 1
        valid = action in MOVES
        if valid:
            self.state = self.layout.move(self.state, action)
        return self._observe(-self.task.step_cost, valid)

    def expert_action(self) -> str:
        path = self.layout.solve(self.state)
        assert path
        return path[0]

    def random_action(self, rng: np.random.Generator) -> str:
        return "UDLR"[int(rng.integers(4))]

    def _observe(self, reward: float = 0.0, valid: bool = True) -> TextStep:
        solved = self.layout.is_goal(self.state)
        grid = self.layout.characters(self.state, self.task.view)
        form = self.task.form
        lines = [self._describe()] if form == "words" else grid if form in ("text", "both") else []
        if self.state.keys:
            lines = [*lines, f"keys: {' '.join(sorted(self.state.keys))}"]
        return TextStep(
            "\n".join(["", *lines, ">"]),
            images=(render(grid, self.task.size),) if form in ("image", "both") else (),
            reward=reward + solved,
            terminated=solved,
            valid=valid,
            scores={"exact": float(solved), "efficiency": self.shortest / max(self.moves, 1) if solved else 0.0},
            admissible_actions=tuple(MOVES),
        )

    def _describe(self) -> str:
        """Describe the position, the goal and what is beside the agent in words."""
        row, column = self.state.cell
        cells = {(r, c): mark for r, line in enumerate(self.layout.lines) for c, mark in enumerate(line)}
        goal = next(cell for cell, mark in cells.items() if mark == GOAL)
        text = f"The goal is at row {goal[0]}, column {goal[1]}. "
        if self.task.position:
            text += f"You are at row {row}, column {column}. "
        beside = {name: cells[row + MOVES[m][0], column + MOVES[m][1]] for m, name in _DIRECTIONS.items()}
        walls = [name for name, mark in beside.items() if mark == WALL]
        text += f"Walls: {', '.join(walls) or 'none'}."
        others = [f"{mark} is {name}" for name, mark in beside.items() if mark not in (WALL, FLOOR, GOAL)]
        return " ".join([text, *(f"{other}." for other in others)])
