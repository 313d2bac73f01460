"""Rules of tic-tac-toe; a position is a text of nine squares by rows: X, O, or a dot for an empty one."""

from __future__ import annotations

import functools
from collections.abc import Sequence

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


class TicTacToeRules:
    """Rules: X moves first; three of one kind in a line win. Moves are squares from 0 to 8, by rows."""

    def start(self) -> str:
        return "." * 9

    def actions(self, position: str) -> Sequence[int]:
        return [square for square, mark in enumerate(position) if mark == "."]

    def move(self, position: str, action: int) -> str:
        if position[action] != ".":
            raise ValueError(f"square {action} of {position!r} is taken")
        mark = "X" if position.count("X") == position.count("O") else "O"
        return f"{position[:action]}{mark}{position[action + 1 :]}"

    def outcome(self, position: str) -> int | None:
        for line in LINES:
            marks = {position[square] for square in line}
            if marks in ({"X"}, {"O"}):
                return 1 if marks == {"X"} else -1
        return None if "." in position else 0

    def write(self, position: str) -> str:
        return position


@functools.cache
def list_positions() -> tuple[str, ...]:
    """All positions that can be reached in which X is to move, in order of their texts."""
    rules = TicTacToeRules()
    reached, front = {rules.start()}, [rules.start()]
    while front:
        position = front.pop()
        for action in rules.actions(position):
            after = rules.move(position, action)
            if after not in reached and rules.outcome(after) is None:
                reached.add(after)
                front.append(after)
    return tuple(sorted(position for position in reached if position.count("X") == position.count("O")))


@functools.cache
def list_moves() -> tuple[tuple[str, int], ...]:
    """All positions in which X is to move, with each legal move."""
    return tuple((position, action) for position in list_positions() for action in TicTacToeRules().actions(position))


@functools.cache
def value_of(position: str) -> float:
    """Expected outcome of best play of X against a player that draws its moves uniformly."""
    rules = TicTacToeRules()
    outcome = rules.outcome(position)
    if outcome is not None:
        return float(outcome)
    after = [value_of(rules.move(position, action)) for action in rules.actions(position)]
    return max(after) if position.count("X") == position.count("O") else sum(after) / len(after)
