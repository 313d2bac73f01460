"""Depth-first search of a puzzle: solutions, dead ends, and their trace as text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

BACK = "back"
"""First word of a line of a trace that gives up an attempt."""


@dataclass(frozen=True)
class Step:
    """A step of the search as a line, and the state after it."""

    line: str
    state: Any


Path = tuple[Step, ...]


class SearchTree(ABC):
    """A puzzle as a tree of steps. A path ends in a state without further steps, solved or not."""

    @abstractmethod
    def start(self) -> Any:
        """Return the state before the first step."""

    @abstractmethod
    def steps(self, state: Any) -> list[Step]:
        """List the steps that can be tried in a state; none where the path ends."""

    def attempts(self, state: Any) -> list[Step]:
        """List the steps with which a dead end may begin."""
        return self.steps(state)

    @abstractmethod
    def is_solved(self, state: Any) -> bool:
        """Whether the path that ends in this state solves the puzzle."""

    @abstractmethod
    def write(self, state: Any) -> str:
        """Write a state on one line, behind `back`."""

    def list_paths(self, state: Any) -> Iterator[Path]:
        """All paths from a state to their ends, depth first."""
        steps = self.steps(state)
        if not steps:
            yield ()
            return
        for step in steps:
            for path in self.list_paths(step.state):
                yield (step, *path)

    def solve(self) -> Path | None:
        """Return the first path, depth first, that solves the puzzle; None if there is none."""
        paths = self.list_paths(self.start())
        return next((path for path in paths if path and self.is_solved(path[-1].state)), None)

    def list_failures(self, solution: Path) -> Iterator[tuple[int, Path]]:
        """All dead ends: the step of the solution before which one is tried, and its path, which begins otherwise."""
        before = [self.start(), *(step.state for step in solution[:-1])]
        for place, state in enumerate(before):
            for first in self.attempts(state):
                for rest in self.list_paths(first.state):
                    path = (first, *rest)
                    if first.line != solution[place].line and not self.is_solved(path[-1].state):
                        yield place, path

    def write_trace(self, solution: Path, failures: Sequence[tuple[int, Path]]) -> str:
        """Write the search: before each step of the solution its dead ends, each given up by `back` and the state.

        Args:
            solution: its steps, one a line.
            failures: dead ends with the steps before which they are tried, in order.
        """
        lines, state = [], self.start()
        for place, step in enumerate(solution):
            for at, path in failures:
                if at == place:
                    lines += [*(one.line for one in path), f"{BACK} {self.write(state)}"]
            lines.append(step.line)
            state = step.state
        return "\n".join(lines)


def draw_failures(rng: np.random.Generator, failures: Sequence[tuple[int, Path]], count: int) -> list[tuple[int, Path]]:
    """Draw `count` different dead ends, in the order of the steps before which they are tried."""
    numbers = sorted(rng.permutation(len(failures))[:count].tolist())
    return [failures[number] for number in numbers]
