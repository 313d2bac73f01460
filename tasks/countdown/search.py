"""Search of Countdown: operations on the numbers that are left, solutions, failed attempts, and their trace as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

BACK = "back"
"""First word of a line of a trace that gives up an attempt."""


@dataclass(frozen=True)
class Number:
    """A number that is left, and the expression that makes it."""

    value: int
    expression: str

    def operand(self) -> str:
        """Return the expression as part of a longer one."""
        return self.expression if self.expression.isdigit() else f"({self.expression})"


@dataclass(frozen=True)
class Step:
    """An operation on two of the numbers, and the numbers that are left after it."""

    line: str
    left: tuple[Number, ...]


Path = tuple[Step, ...]


def start(numbers: Sequence[int]) -> tuple[Number, ...]:
    """Return the numbers of a problem before the first operation."""
    return tuple(Number(number, str(number)) for number in numbers)


def list_steps(left: Sequence[Number]) -> list[Step]:
    """List all operations on two numbers whose result is a positive integer; the result stands last."""
    steps = []
    for i, first in enumerate(left):
        for j, second in enumerate(left[i + 1 :], i + 1):
            others = tuple(number for k, number in enumerate(left) if k not in (i, j))
            a, b = (first, second) if first.value >= second.value else (second, first)
            results = {"+": a.value + b.value, "*": a.value * b.value}
            if a.value > b.value:
                results["-"] = a.value - b.value
            if a.value % b.value == 0:
                results["/"] = a.value // b.value
            for sign, value in results.items():
                line = f"{a.value}{sign}{b.value}={value}"
                steps.append(Step(line, (*others, Number(value, f"{a.operand()}{sign}{b.operand()}"))))
    return steps


def list_paths(left: Sequence[Number]) -> Iterator[Path]:
    """All sequences of operations until one number is left, depth first."""
    if len(left) == 1:
        yield ()
        return
    for step in list_steps(left):
        for path in list_paths(step.left):
            yield (step, *path)


def solve(numbers: Sequence[int], target: int) -> Path | None:
    """Return the first sequence of operations, depth first, whose result is the target; None if there is none."""
    return next((path for path in list_paths(start(numbers)) if get_result(path) == target), None)


def get_result(path: Path) -> int:
    """Return the number that is left after a path of at least one operation."""
    return path[-1].left[0].value


def draw_path(rng: np.random.Generator, left: Sequence[Number]) -> Path:
    """Draw operations until one number is left."""
    path: list[Step] = []
    while len(left) > 1:
        steps = list_steps(left)
        path.append(steps[int(rng.integers(len(steps)))])
        left = path[-1].left
    return tuple(path)


def list_failures(left: Sequence[Number], step: Step, target: int) -> Iterator[Path]:
    """All paths that neither begin with the step of the solution nor reach the target."""
    return (path for path in list_paths(left) if path[0].line != step.line and get_result(path) != target)


def draw_failures(rng: np.random.Generator, numbers: Sequence[int], solution: Path, count: int) -> list[list[Path]]:
    """Draw `count` different failed attempts, listed for each step of the solution, before which they are tried.

    There have to be `count` of them before the first step.
    """
    target, before = get_result(solution), [start(numbers), *(step.left for step in solution[:-1])]
    failures: list[list[Path]] = [[] for _ in solution]
    keys: set[tuple[int, str]] = set()
    while len(keys) < count:
        place = int(rng.integers(len(solution)))
        path = draw_path(rng, before[place])
        key = (place, write_path(path))
        if path[0].line != solution[place].line and get_result(path) != target and key not in keys:
            keys.add(key)
            failures[place].append(path)
    return failures


def write_path(path: Path) -> str:
    """Write the operations of a path, one a line."""
    return "\n".join(step.line for step in path)


def write_trace(numbers: Sequence[int], solution: Path, failures: Sequence[Sequence[Path]]) -> str:
    """Write the search: before each step of the solution its failed attempts, each given up by `back` and the numbers
    that are left again.
    """
    lines, rest = [], start(numbers)
    for step, failed in zip(solution, failures):
        for path in failed:
            lines += [write_path(path), " ".join([BACK, *(str(number.value) for number in rest)])]
        lines.append(step.line)
        rest = step.left
    return "\n".join(lines)


def count_backtracks(text: str) -> int:
    """Count the lines that begin with the word `back`."""
    return sum(line.split()[:1] == [BACK] for line in text.splitlines())
