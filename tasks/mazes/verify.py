"""Verify a path through a maze by walking it."""

from __future__ import annotations

import re

from tasks.checks import final_line
from tasks.mazes.maze import Maze, count_turns

LONGEST = 4  # moves for each cell; longer answers are not walked


def verify(text: str, maze: Maze, reference: str) -> dict[str, float]:
    """Score the path on the final line.

    format: 1 if the final line is letters of U, D, L, R alone, at most 4 for each cell.
    exact: 1 if no move runs into a wall and the last cell is the goal.
    shortest: exact, and no path is shorter.
    progress: max(0, 1 - d(last cell, goal) / d(start, goal)), d in moves; 0 after a move into a wall.
    prefix: `prefix_score` against one shortest path.
    """
    path = final_line(text)
    if not re.fullmatch("[UDLR]+", path) or len(path) > LONGEST * maze.rows * maze.columns:
        return {"exact": 0.0, "shortest": 0.0, "progress": 0.0, "prefix": 0.0, "format": 0.0}
    cell, legal = maze.walk(path)
    distance = maze.distances(maze.goal)[cell]
    exact = legal and distance == 0
    return {
        "exact": float(exact),
        "shortest": float(exact and len(path) == len(reference)),
        "progress": max(0.0, 1 - distance / len(reference)) if legal else 0.0,
        "prefix": prefix_score(path, reference),
        "format": 1.0,
    }


def prefix_score(path: str, reference: str) -> float:
    """Length and turns of the prefix that a path shares with the reference, as a share of the most.

    k (T_k + 1) / (2 L (T + 1)), with k the moves of the shared prefix, T_k its changes of direction, and L and T those
    of the reference; 1 for the reference itself.
    Source: Ariadne, "Probing and Extending VLM Reasoning Boundaries", 2025, accuracy reward, divided by its maximum.
    """
    if path == reference:
        return 1.0
    shared = next((i for i, (a, b) in enumerate(zip(path, reference)) if a != b), min(len(path), len(reference)))
    most = 2 * len(reference) * (count_turns(reference) + 1)
    return shared * (count_turns(reference[:shared]) + 1) / most
