"""Expert of the goal-view rooms: a shortest sequence of actions, found with the whole layout."""

from __future__ import annotations

from collections import deque

from sims.goal_views.layout import HEADINGS, Cell, RoomLayout

FORWARD, LEFT, RIGHT, BREAK, USE = range(5)
"""Actions of the agent."""
EVENT_ACTIONS = {"break": BREAK, "use": USE}
"""Actions that bring about an event at the object ahead; "approach" needs none."""


def move(layout: RoomLayout, cell: Cell, heading: int, action: int) -> tuple[Cell, int]:
    """Cell and heading after a step or a turn; something in the way keeps the agent in its cell."""
    if action == FORWARD:
        ahead = step_ahead(cell, heading)
        return (ahead if layout.is_free(ahead) else cell), heading
    return cell, (heading + (1 if action == RIGHT else -1)) % 4


def step_ahead(cell: Cell, heading: int) -> Cell:
    """The cell ahead."""
    return cell[0] + HEADINGS[heading][0], cell[1] + HEADINGS[heading][1]


def plan_actions(layout: RoomLayout, target: int, event: str, cell: Cell, heading: int) -> list[int]:
    """Plan a shortest sequence of actions that brings about the event at the target.

    Raises:
        ValueError: there is no way to the target.
    """
    goal = layout.cells[target]
    first = (cell, heading)
    before: dict[tuple[Cell, int], tuple[tuple[Cell, int], int] | None] = {first: None}
    border = deque([first])
    while border:
        state = border.popleft()
        if step_ahead(*state) == goal:
            actions = [EVENT_ACTIONS[event]] if event in EVENT_ACTIONS else []
            while (step := before[state]) is not None:
                state, action = step
                actions.insert(0, action)
            return actions
        for action in (FORWARD, LEFT, RIGHT):
            following = move(layout, *state, action)
            if following not in before:
                before[following] = (state, action)
                border.append(following)
    raise ValueError(f"no way leads from cell {cell} to the target in {goal}")
