"""Gridworld with thoughts: before each action the policy says where it and the goal are."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.gridworld.layout import GOAL, Layout
from tasks.gridworld.task import GridEnvironment, GridWorld


@dataclass(frozen=True)
class ThoughtGridWorld(GridWorld):
    """Gridworld whose answers are a thought, a colon and an action: "11,23:R" at row 1, column 1 with G at row 2,
    column 3.

    Args: as of GridWorld; at most 10 rows and columns, so that a cell is two digits.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if max(self.rows, self.columns) > 10:
            raise ValueError(
                f"task gridworld: thoughts name cells of at most 10 rows and columns, got {self.rows} x {self.columns}"
            )

    def explain(self, problem: Layout) -> str:
        return super().explain(problem) + " First your cell and G's: 11,23:R."

    def make_environment(self) -> ThoughtGridEnvironment:
        return ThoughtGridEnvironment(self)


class ThoughtGridEnvironment(GridEnvironment):
    """GridEnvironment with a scripted corrector, which knows the cells."""

    def correct_thought(self, thought: str) -> str | None:
        """Return the right thought in this state; None where the given one is right."""
        row, column = self.state.cell
        goal = next((r, line.index(GOAL)) for r, line in enumerate(self.layout.lines) if GOAL in line)
        right = f"{row}{column},{goal[0]}{goal[1]}"
        return None if thought == right else right
