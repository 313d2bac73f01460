"""One crafting world: a grid, an agent and what it holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from sims.craft.tree import TechTree

MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
"""Row and column that the first four actions add."""
COLLECT = len(MOVES)
"""Number of the action that takes what lies in the agent's field; then one action for each recipe, in their order."""
EMPTY = -1
FULL = 5
"""Pieces of an item from which on a policy sees no more."""


class CraftWorld:
    """Walk over a grid, collect the material of the field one stands on, and make items of what one holds.

    Actions: up, down, left, right (the edge stops the agent), collect, and making each item of the recipes. An action
    without what it needs does nothing. The reward is 1 for the first piece of the target, which ends the episode.

    Args:
        tree: of the items.
        target: the item that ends the episode.
        size: fields of a side.
        max_steps: decisions until time is up.
    """

    def __init__(self, tree: TechTree, target: str, size: int, max_steps: int):
        self.tree, self.target, self.size, self.max_steps = tree, target, size, max_steps
        self.items = tree.items
        self.materials = list(tree.counts)
        self.ingredients, self.tools = tree.needs()
        self.makes = np.array([tree.steps[name].makes for name in self.items])
        self.fields = np.full((size, size), EMPTY)  # number of the material of each field
        self.row = self.column = self.steps = 0
        self.held = np.zeros(len(self.items), np.int64)
        self.had = np.zeros(len(self.items), bool)  # items of which a piece was had in this episode
        self.gained = EMPTY  # item that the last decision gave

    def reset(self, seed: int) -> None:
        """Place the materials and the agent in fields of their own, a function of the seed alone."""
        total = sum(self.tree.counts.values())
        places = np.random.default_rng(seed).permutation(self.size**2)[: total + 1]
        self.fields = np.full((self.size, self.size), EMPTY)
        kinds = np.repeat(np.arange(len(self.materials)), list(self.tree.counts.values()))
        self.fields.flat[places[:total]] = kinds
        self.row, self.column = (int(number) for number in divmod(places[total], self.size))
        self.held = np.zeros(len(self.items), np.int64)
        self.had, self.gained, self.steps = np.zeros(len(self.items), bool), EMPTY, 0

    @property
    def done(self) -> bool:
        """Whether the target was made or collected."""
        return bool(self.had[self.items.index(self.target)])

    def step(self, action: int) -> float:
        """Take one action; returns the reward."""
        before = self.done
        self.steps, self.gained = self.steps + 1, EMPTY
        if action < COLLECT:
            rows, columns = list(MOVES.values())[action]
            self.row = min(max(self.row + rows, 0), self.size - 1)
            self.column = min(max(self.column + columns, 0), self.size - 1)
        else:
            item = self.item_of(action)
            if item != EMPTY and self.can_have(item):
                self.held += self.makes[item] * (np.arange(len(self.held)) == item) - self.ingredients[item]
                self.had[item], self.gained = True, item
                if action == COLLECT:
                    self.fields[self.row, self.column] = EMPTY
        return float(self.done and not before)

    def item_of(self, action: int) -> int:
        """Number of the item that an action from `COLLECT` on gives where it works; -1 in an empty field."""
        if action == COLLECT:
            return int(self.fields[self.row, self.column])
        return len(self.materials) + action - COLLECT - 1

    def can_have(self, item: int) -> bool:
        """Whether the agent holds the tools and ingredients of an item."""
        return bool((self.held >= self.ingredients[item]).all() and (self.held[self.tools[item]] > 0).all())

    def nearest(self, material: int) -> tuple[int, int] | None:
        """Rows and columns to the nearest field with a material, the uppermost and then leftmost; None if none is left.

        Distance is counted in moves.
        """
        rows, columns = np.nonzero(self.fields == material)
        if not len(rows):
            return None
        place = int(np.argmin(np.abs(rows - self.row) + np.abs(columns - self.column)))
        return int(rows[place]) - self.row, int(columns[place]) - self.column

    def observe(self) -> np.ndarray:
        """Observation float32 [4 M + I]: four numbers of every material, then one of every item.

        Of a material: whether a piece is left, whether one lies in the agent's field, and rows and columns to the
        nearest one in units of the grid's side. Of an item: the pieces held, at most 5, over 5.
        """
        ways = []
        for material in range(len(self.materials)):
            way = self.nearest(material)
            ways += [0.0] * 4 if way is None else [1.0, way == (0, 0), way[0] / self.size, way[1] / self.size]
        return np.concatenate([ways, np.minimum(self.held, FULL) / FULL]).astype(np.float32)

    @property
    def unwrapped(self) -> CraftWorld:
        return self

    def named_state(self) -> dict[str, Any]:
        """The state by name: the agent's field, what it holds and what lies where; rows and columns from 0."""
        rows, columns = np.nonzero(self.fields != EMPTY)
        names = [self.materials[number] for number in self.fields[rows, columns]]
        return {
            "agent": {"row": self.row, "column": self.column},
            "held": {name: int(number) for name, number in zip(self.items, self.held) if number},
            "had": [name for name, had in zip(self.items, self.had) if had],
            "objects": [
                {"name": name, "row": int(row), "column": int(column)}
                for name, row, column in zip(names, rows, columns)
            ],
            "target": self.target,
            "steps_left": self.max_steps - self.steps,
        }

    def caption(self) -> str:
        """The state in words."""
        state = self.named_state()
        held = ", ".join(f"{number} {name}" for name, number in state["held"].items())
        near = []
        for number, name in enumerate(self.materials):
            way = self.nearest(number)
            near.append(f"no {name} is left" if way is None else f"the nearest {name} is {_direction(*way)}")
        return (
            f"You stand in row {self.row + 1}, column {self.column + 1} of {self.size} x {self.size} fields and hold "
            f"{held or 'nothing'}. {'; '.join(near).capitalize()}. Your task: {self.target}."
        )


def _direction(rows: int, columns: int) -> str:
    parts = [f"{abs(rows)} {'down' if rows > 0 else 'up'}"] if rows else []
    parts += [f"{abs(columns)} {'right' if columns > 0 else 'left'}"] if columns else []
    return " and ".join(parts) or "under you"
