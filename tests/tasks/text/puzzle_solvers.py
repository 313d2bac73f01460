"""Right answers to problems of reasoning-gym whose generator states none, from their metadata."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

SIDE = 6  # of a board of rush_hour


def _slide(board: str, letter: str, stride: int) -> Iterator[tuple[str, str]]:
    """Boards after one piece moved by one square, and the move."""
    squares = [place for place, one in enumerate(board) if one == letter]
    for sign, end, last, step in (("+", squares[-1], squares[0], stride), ("-", squares[0], squares[-1], -stride)):
        new = end + step
        if 0 <= new < len(board) and board[new] == "o" and (stride > 1 or new // SIDE == end // SIDE):
            squares_after = [*board]
            squares_after[new], squares_after[last] = letter, "o"
            yield "".join(squares_after), f"{letter}{sign}1"


def solve_rush_hour(board: str) -> str:
    """The fewest moves of one square that bring piece A to the right end of the third row, by breadth-first search."""
    strides = {
        letter: board.index(letter, board.index(letter) + 1) - board.index(letter) for letter in {*board} - {*"ox"}
    }
    queue: deque[tuple[str, tuple[str, ...]]] = deque([(board, ())])
    known = {board}
    while queue:
        board, moves = queue.popleft()
        if board[2 * SIDE + 4 : 3 * SIDE] == "AA":
            return " ".join(moves)
        for letter, stride in strides.items():
            for after, move in _slide(board, letter, stride):
                if after not in known:
                    known.add(after)
                    queue.append((after, (*moves, move)))
    raise ValueError("the board has no solution")


def solve_boxes(squares: Mapping[str, list[str]]) -> str:
    """Carry each box to its target, first along the rows."""
    steps = []
    for start, items in squares.items():
        for box in (item for item in items if item.startswith("box_")):
            target = box.replace("box_", "target_")
            goal = next(square for square, others in squares.items() if target in others)
            (row, column), (last_row, last_column) = (map(float, square.split("_")) for square in (start, goal))
            while (row, column) != (last_row, last_column):
                agent = f"Agent[{row}, {column}]"
                if row != last_row:
                    row += 1 if last_row > row else -1
                else:
                    column += 1 if last_column > column else -1
                steps.append({agent: f"move({box}, square[{row}, {column}])"})
            steps.append({f"Agent[{row}, {column}]": f"move({box}, {target})"})
    return json.dumps(steps)


SOLVERS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "boxnet": lambda metadata: solve_boxes(metadata["initial_state"]),
    "graph_color": lambda metadata: json.dumps(metadata["possible_answer"]),
    "propositional_logic": lambda metadata: metadata["example_answer"],
    "rubiks_cube": lambda metadata: metadata["example_correct_answer"],
    "rush_hour": lambda metadata: solve_rush_hour(metadata["board_config"]),
}
"""By generator that states no answer."""
