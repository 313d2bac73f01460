"""A grid world in words for a language model that writes subgoals, and the subgoals in its answer."""

from __future__ import annotations

import re
from typing import Any

from sims.subgoals.plans import Field, find_objects

_FIELD = r"\[(\d{1,3}),(\d{1,3})\]"
_LIST = re.compile(r"\[(?:\[\d{1,3},\d{1,3}\](?:,\[\d{1,3},\d{1,3}\])*)?\]")


def describe_grid(grid: Any) -> str:
    """Question about an environment of MiniGrid after its reset: size, mission, agent, walls and objects."""
    lines = [f"{_colour(cell)}{cell.type} at [{x}, {y}]{_state(cell)}" for (x, y), cell in find_objects(grid).items()]
    walls = [
        f"[{x}, {y}]"
        for x in range(1, grid.width - 1)
        for y in range(1, grid.height - 1)
        if (cell := grid.grid.get(x, y)) is not None and cell.type == "wall"
    ]
    column, row = (int(number) for number in grid.agent_pos)
    return (
        f"A grid has {grid.width} columns and {grid.height} rows; [column, row] is a field, [0, 0] the top left one. "
        f"The outermost fields are walls. An agent stands at [{column}, {row}]. Its mission: {grid.mission}.\n"
        f"Objects: {'; '.join(lines) or 'none'}.\nFurther walls: {', '.join(walls) or 'none'}.\n"
        "Which fields must the agent reach or change, in which order, to fulfil its mission? Name the fewest, such as "
        "that of a key, that of a door and that of the target. End with a JSON list alone, such as [[1, 2], [3, 2]]."
    )


def read_subgoals(answer: str, grid: Any) -> list[Field] | None:
    """The last list of fields in an answer; None without one, or where a field is outside of the grid."""
    lists = _LIST.findall("".join(answer.split()))
    if not lists:
        return None
    plan = [(int(x), int(y)) for x, y in re.findall(_FIELD, lists[-1])]
    return plan if all(x < grid.width and y < grid.height for x, y in plan) else None


def _colour(cell: Any) -> str:
    return "" if cell.type == "goal" else f"{cell.color} "


def _state(cell: Any) -> str:
    if cell.type != "door":
        return ""
    return " (locked)" if cell.is_locked else " (open)" if cell.is_open else " (closed)"
