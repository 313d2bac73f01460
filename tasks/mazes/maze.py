"""Mazes on a grid: uniform spanning trees, distances, paths, and their image and text."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

Cell = tuple[int, int]
"""Row and column, from 0."""

MOVES = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
WALL, FLOOR, START, GOAL = (24, 24, 24), (255, 255, 255), (220, 40, 40), (40, 170, 60)
_COLOURS = {"#": WALL, ".": FLOOR, "S": START, "G": GOAL}


@dataclass(frozen=True)
class Maze:
    """A grid of cells, the pairs of neighbours between which there is no wall, a start and a goal."""

    rows: int
    columns: int
    doors: frozenset[tuple[Cell, Cell]]  # both directions of each
    start: Cell
    goal: Cell

    def walk(self, path: str) -> tuple[Cell, bool]:
        """Follow a path from the start; return the last cell, and whether no move ran into a wall."""
        cell = self.start
        for move in path:
            following = _move(cell, move)
            if (cell, following) not in self.doors:
                return cell, False
            cell = following
        return cell, True

    def distances(self, source: Cell) -> dict[Cell, int]:
        """Return the number of moves from a cell to every cell."""
        distances, queue = {source: 0}, deque([source])
        while queue:
            cell = queue.popleft()
            for following in (_move(cell, move) for move in MOVES):
                if (cell, following) in self.doors and following not in distances:
                    distances[following] = distances[cell] + 1
                    queue.append(following)
        return distances

    def solve(self) -> str:
        """Return the first shortest path in the order of the letters D, L, R, U."""
        distances, cell, path = self.distances(self.goal), self.start, ""
        while cell != self.goal:
            move = next(
                m
                for m in "DLRU"
                if (cell, _move(cell, m)) in self.doors and distances[_move(cell, m)] < distances[cell]
            )
            cell, path = _move(cell, move), path + move
        return path

    def characters(self) -> list[str]:
        """Draw the maze as 2 rows + 1 lines: # is a wall, . is free, S the start, G the goal."""
        grid = [["#"] * (2 * self.columns + 1) for _ in range(2 * self.rows + 1)]
        for (row, column), (other_row, other_column) in self.doors:
            grid[2 * row + 1][2 * column + 1] = "."
            grid[row + other_row + 1][column + other_column + 1] = "."
        for mark, (row, column) in (("S", self.start), ("G", self.goal)):
            grid[2 * row + 1][2 * column + 1] = mark
        return ["".join(line) for line in grid]

    def render(self, size: int) -> np.ndarray:
        """Draw the maze in the middle of a square image, uint8 [size, size, 3]; the start is red, the goal green."""
        blocks = np.array([[_COLOURS[mark] for mark in line] for line in self.characters()], np.uint8)
        scale = size // max(blocks.shape[:2])
        tiles = blocks.repeat(scale, axis=0).repeat(scale, axis=1)
        image = np.full((size, size, 3), WALL, np.uint8)
        row, column = (size - tiles.shape[0]) // 2, (size - tiles.shape[1]) // 2
        image[row : row + tiles.shape[0], column : column + tiles.shape[1]] = tiles
        return image


def draw_doors(rng: np.random.Generator, rows: int, columns: int, loops: int) -> frozenset[tuple[Cell, Cell]]:
    """Draw a spanning tree, all equally likely, and open `loops` further walls.

    A random walk from each cell until it meets the tree joins the tree without its loops.
    Source: Wilson, "Generating random spanning trees more quickly than the cover time", STOC 1996.
    """
    cells = [(row, column) for row in range(rows) for column in range(columns)]
    tree = {cells[int(rng.integers(len(cells)))]}
    pairs = set()
    for first in cells:
        exits, cell = {}, first
        while cell not in tree:
            near = neighbours(cell, rows, columns)
            exits[cell] = near[int(rng.integers(len(near)))]  # a later exit replaces the earlier one: the loop is gone
            cell = exits[cell]
        cell = first
        while cell not in tree:
            tree.add(cell)
            pairs.add((cell, exits[cell]))
            cell = exits[cell]
    walls = [(a, b) for a in cells for b in neighbours(a, rows, columns) if a < b and not {(a, b), (b, a)} & pairs]
    pairs |= {walls[i] for i in rng.permutation(len(walls))[:loops]}
    return frozenset(pairs | {(b, a) for a, b in pairs})


def neighbours(cell: Cell, rows: int, columns: int) -> Sequence[Cell]:
    """Return the cells beside a cell, inside of the grid."""
    near = [_move(cell, move) for move in MOVES]
    return [(row, column) for row, column in near if 0 <= row < rows and 0 <= column < columns]


def count_turns(path: str) -> int:
    """Count the changes of direction along a path."""
    return sum(a != b for a, b in pairwise(path))


def _move(cell: Cell, move: str) -> Cell:
    return cell[0] + MOVES[move][0], cell[1] + MOVES[move][1]
