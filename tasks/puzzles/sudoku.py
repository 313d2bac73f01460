"""Sudoku of four by four: 1.3. ...2 2... .4.1? is answered by the sixteen digits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice

import numpy as np

from mmrl.core.types import Prompt
from tasks.checks import check_range, final_line
from tasks.generated import ask_user, to_tuples
from tasks.puzzles.search import Path, SearchTree, Step
from tasks.puzzles.task import SearchTask

Grid = tuple[int, ...]
"""Sixteen cells, row by row; 0 is empty."""
_BASE = (1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1)
_ANSWER = re.compile(r"[1-4]{4}( [1-4]{4}){3}")


@dataclass(frozen=True)
class SudokuSearch(SearchTree):
    """The first empty cell is filled by each digit that no cell of its row, column and box has.

    A dead end may begin with any empty cell.
    """

    grid: Grid

    def start(self) -> Grid:
        return self.grid

    def steps(self, state: Grid) -> list[Step]:
        if 0 not in state:
            return []
        return self._fill(state, state.index(0))

    def attempts(self, state: Grid) -> list[Step]:
        return [step for cell, digit in enumerate(state) if not digit for step in self._fill(state, cell)]

    def _fill(self, state: Grid, cell: int) -> list[Step]:
        peers = {state[other] for other in list_peers(cell)}
        name = f"{'abcd'[cell % 4]}{cell // 4 + 1}"
        return [Step(f"{name}={d}", (*state[:cell], d, *state[cell + 1 :])) for d in range(1, 5) if d not in peers]

    def is_solved(self, state: Grid) -> bool:
        return 0 not in state

    def write(self, state: Grid) -> str:
        return write_grid(state)


@dataclass(frozen=True, kw_only=True)
class Sudoku(SearchTask):
    """Sudoku of four by four with one solution.

    A solved grid is in one split alone. The answer is four rows of four digits.

    Args:
        empty: fewest and most empty cells.
        question: the user's turn; {grid} stands for the grid.
    """

    empty: Sequence[int] = (8, 9)
    question: str = "{grid}?"

    name = "sudoku"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "empty")
        check_range(self.name, "empty", self.empty, 1, 12)
        if self.question.count("{grid}") != 1:
            raise ValueError(f"task {self.name!r}: question must hold {{grid}} once, got {self.question!r}")

    def draw(self, rng: np.random.Generator) -> Grid | None:
        solved, empty = draw_grid(rng), int(rng.integers(self.empty[0], self.empty[1], endpoint=True))
        cells = set(rng.permutation(16)[:empty].tolist())
        grid = tuple(0 if cell in cells else digit for cell, digit in enumerate(solved))
        paths = (path for path in SudokuSearch(grid).list_paths(grid) if len(path) == empty)
        return grid if len(list(islice(paths, 2))) == 1 and self.find_solution(grid) is not None else None

    def split_key(self, problem: Grid) -> str:
        return self.write_solution(problem, self._solve(problem))

    def build_search(self, problem: Grid) -> SudokuSearch:
        return SudokuSearch(problem)

    def write_solution(self, problem: Grid, solution: Path) -> str:
        return write_grid(solution[-1].state)

    def _solve(self, problem: Grid) -> Path:
        solution = self.build_search(problem).solve()
        assert solution is not None
        return solution

    def write_prompt(self, problem: Grid, key: str) -> Prompt:
        question = self.question.replace("{grid}", write_grid(problem))
        return Prompt(key, ask_user(question), answer=self.split_key(problem), info={"grid": problem})

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: 1 if the final line is the solution; cells: share of the empty cells that are right, of a line that
        keeps the given digits; format: 1 if the final line is four rows of four digits.
        """
        final = final_line(answer)
        if _ANSWER.fullmatch(final) is None:
            return {"exact": 0.0, "cells": 0.0, "format": 0.0}
        pairs = list(zip(prompt.info["grid"], read_grid(final), read_grid(prompt.answer)))
        keeps_clues = all(given in (0, digit) for given, digit, _ in pairs)
        filled = [digit == right for given, digit, right in pairs if given == 0]
        cells = sum(filled) / len(filled) if keeps_clues else 0.0
        return {"exact": float(final == prompt.answer), "cells": cells, "format": 1.0}

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer(write_grid(draw_grid(rng)))


@cache
def list_peers(cell: int) -> tuple[int, ...]:
    """List the cells of the row, the column and the box of a cell."""
    row, column = divmod(cell, 4)
    return tuple(
        other
        for other in range(16)
        if other // 4 == row or other % 4 == column or (other // 8 == cell // 8 and other % 4 // 2 == column // 2)
    )


def draw_grid(rng: np.random.Generator) -> Grid:
    """Draw a solved grid: digits renamed, rows and columns exchanged within their halves, and the halves too."""
    digits = rng.permutation(4) + 1
    rows, columns = (
        [2 * half + int(line) for half in rng.permutation(2).tolist() for line in rng.permutation(2)] for _ in range(2)
    )
    return tuple(int(digits[_BASE[4 * row + column] - 1]) for row in rows for column in columns)


def write_grid(grid: Sequence[int]) -> str:
    """Write a grid: 1.3. ...2 2... .4.1."""
    text = "".join(str(digit) if digit else "." for digit in grid)
    return " ".join(text[i : i + 4] for i in range(0, 16, 4))


def read_grid(text: str) -> Grid:
    """Read a grid without empty cells."""
    return tuple(int(digit) for digit in text if digit != " ")
