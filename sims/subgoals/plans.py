"""Where the subgoals of an episode come from: the grid itself with planted errors, or a file written beforehand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mmrl.core.rng import derive_rng

Field = tuple[int, int]
"""Column and row of a field of the grid, from 0 at the top left."""

WANTED = ("key", "locked door")


@dataclass(frozen=True)
class ScriptedPlans:
    """The key, the locked door and what the mission is about, each wrong with a probability.

    A wrong subgoal is another field, uniform over those within the outer walls, or another object of the grid. What is
    wrong follows from the seed of the episode, as if it stood in a file.

    Args:
        accuracy: probability that a subgoal is the right one.
        objects: errors are other objects of the grid, and not other fields.
    """

    accuracy: float = 1.0
    objects: bool = False

    def read(self, grid: Any, seed: int) -> list[Field]:
        """The subgoals of an episode, in order.

        Args:
            grid: environment of MiniGrid after its reset.
            seed: that it was reset with.

        Raises:
            ValueError: the grid has no goal, and the mission is about no object.
        """
        rng, plan = derive_rng("subgoals", seed), find_plan(grid)
        inner = [(x, y) for x in range(1, grid.width - 1) for y in range(1, grid.height - 1)]
        pool = list(find_objects(grid)) if self.objects else inner
        for place, right in enumerate(plan):
            others = [position for position in pool if position != right]
            if rng.random() >= self.accuracy and others:
                plan[place] = others[int(rng.integers(len(others)))]
        return plan


@dataclass(frozen=True)
class FilePlans:
    """Subgoals in a file, a JSON object a line: {"seed": 12, "subgoals": [[2, 1], [3, 2]]}.

    An episode whose seed is not in the file has no subgoals.

    Args:
        path: of the file.
    """

    path: str

    @cached_property
    def rows(self) -> Mapping[int, Sequence[Field]]:
        """Subgoals by seed.

        Raises:
            ValueError: with the line, what is wrong with it; or the file has no line.
        """
        rows: dict[int, list[Field]] = {}
        try:
            lines = Path(self.path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"sim.plans={self.path} cannot be read: {error}") from error
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                seed, fields = row["seed"], [tuple(position) for position in row["subgoals"]]
                whole = all(type(n) is int and n >= 0 for n in (seed, *(n for pair in fields for n in pair)))
                good = whole and all(len(position) == 2 for position in fields)
            except (ValueError, TypeError, LookupError, RecursionError):
                good = False
            if not good:
                raise ValueError(
                    f'{self.path}, line {number}: write {{"seed": 12, "subgoals": [[2, 1], [3, 2]]}}, numbers from 0, '
                    f"got {line:.80}"
                )
            if seed in rows:
                raise ValueError(f"{self.path}, line {number}: seed {seed} has a line already; leave one of them")
            rows[seed] = fields
        if not rows:
            raise ValueError(f"sim.plans={self.path} has no line")
        return rows

    def read(self, grid: Any, seed: int) -> list[Field]:
        """The subgoals of an episode, in order; as `ScriptedPlans.read`.

        Raises:
            ValueError: a field is outside of the grid.
        """
        plan = list(self.rows.get(seed, ()))
        if outside := [position for position in plan if position[0] >= grid.width or position[1] >= grid.height]:
            raise ValueError(
                f"{self.path}, seed {seed}: subgoal {list(outside[0])} is outside of the grid, which has {grid.width} "
                f"columns and {grid.height} rows"
            )
        return plan


def find_objects(grid: Any) -> dict[Field, Any]:
    """Objects of MiniGrid other than walls by field, column by column."""
    found = {}
    for x in range(grid.width):
        for y in range(grid.height):
            cell = grid.grid.get(x, y)
            if cell is not None and cell.type != "wall":
                found[x, y] = cell
    return found


def find_plan(grid: Any) -> list[Field]:
    """Key, locked door, and the mission's object or the goal, as far as the grid has them.

    Raises:
        ValueError: the grid has no goal, and the mission is about no object.
    """
    objects = find_objects(grid)
    target = getattr(grid, "obj", None)
    keys = [position for position, cell in objects.items() if cell.type == "key" and cell is not target]
    doors = [position for position, cell in objects.items() if cell.type == "door" and cell.is_locked]
    ends = [position for position, cell in objects.items() if cell is target or cell.type == "goal"]
    if len(ends) != 1 or len(doors) > 1 or len(keys) > 1:
        raise ValueError(
            f"{type(grid).__name__} has {len(keys)} keys, {len(doors)} locked doors and {len(ends)} targets: a "
            "scripted plan needs one target and at most one of the others; give the subgoals in a file, sim.plans=FILE"
        )
    return [*keys, *doors, *ends]
