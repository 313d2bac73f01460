"""Tech tree: what is collected, what is made of what, with which tools, and how much of it an item takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True)
class ItemRecipe:
    """How one item is had: collected from the grid, or made.

    Args:
        ingredients: amounts that are used up, by item; empty for a material.
        tools: items that must be held and stay.
        makes: how many pieces one making gives; 1 for a material.
    """

    ingredients: Mapping[str, int]
    tools: tuple[str, ...] = ()
    makes: int = 1


@dataclass(frozen=True)
class TechTree:
    """Items of a crafting world, materials first, and how each is had.

    Args:
        counts: pieces of each material in the grid.
        steps: by item, in the order in which policies see them.

    Raises:
        ValueError: names the item: it is unknown, needs itself in the end, is both tool and ingredient, or takes more
            of a material than the grid has.
    """

    counts: Mapping[str, int]
    steps: Mapping[str, ItemRecipe]

    def __post_init__(self) -> None:
        for item, step in self.steps.items():
            for name in (*step.ingredients, *step.tools):
                if name not in self.steps:
                    raise ValueError(
                        f"sim: {item!r} needs {name!r}, which is neither in sim.materials nor in sim.recipes; "
                        f"there are {sorted(self.steps)}"
                    )
        self.order  # noqa: B018  # finds cycles
        used = {name: item for item, step in self.steps.items() for name in step.ingredients}
        for item, step in self.steps.items():
            if both := [name for name in step.tools if name in used]:
                raise ValueError(
                    f"sim: {both[0]!r} is a tool of {item!r} and an ingredient of {used[both[0]]!r}; an item is one of "
                    "the two, so that holding a tool takes one piece"
                )

    @property
    def items(self) -> list[str]:
        """Names in order; the number of an item is its place."""
        return list(self.steps)

    @cached_property
    def order(self) -> list[str]:
        """Items with all that an item needs before it.

        Raises:
            ValueError: an item needs itself in the end; the message has the way around.
        """
        done: list[str] = []

        def visit(item: str, path: tuple[str, ...]) -> None:
            if item in path:
                cycle = " -> ".join((*path[path.index(item) :], item))
                raise ValueError(f"sim: {item!r} needs itself, {cycle}; break the cycle in sim.recipes")
            if item not in done:
                for name in (*self.steps[item].ingredients, *self.steps[item].tools):
                    visit(name, (*path, item))
                done.append(item)

        for item in self.steps:
            visit(item, ())
        return done

    def requirements(self, target: str) -> dict[str, int]:
        """Pieces of every item, by name, that one piece of the target takes, itself included; tools count once."""
        used, held = dict.fromkeys(self.steps, 0), dict.fromkeys(self.steps, 0)
        used[target] = 1
        for item in reversed(self.order):
            step, total = self.steps[item], used[item] + held[item]
            makings = math.ceil(total / step.makes)
            for name, amount in step.ingredients.items():
                used[name] += amount * makings
            for name in step.tools if makings else ():
                held[name] = 1
        return {item: used[item] + held[item] for item in self.steps if used[item] + held[item]}

    def check_target(self, target: str) -> None:
        """Refuse a target that no agent can make.

        Raises:
            ValueError: the target is unknown, or takes more of a material than the grid has.
        """
        if target not in self.steps:
            raise ValueError(f"sim.target={target!r} is no item; there are {sorted(self.steps)}")
        needed = self.requirements(target)
        for name, count in self.counts.items():
            if needed.get(name, 0) > count:
                raise ValueError(
                    f"sim.target={target!r} cannot be reached: it takes {needed[name]} {name!r} and the grid has "
                    f"{count}; raise sim.materials.{name}.count"
                )

    def needs(self) -> tuple[np.ndarray, np.ndarray]:
        """Ingredients int64 [I, I] and tools bool [I, I]: row i has what item i takes of every item."""
        number = {name: place for place, name in enumerate(self.items)}
        ingredients = np.zeros((len(number), len(number)), np.int64)
        tools = np.zeros(ingredients.shape, bool)
        for item, step in self.steps.items():
            for name, amount in step.ingredients.items():
                ingredients[number[item], number[name]] = amount
            tools[number[item], [number[name] for name in step.tools]] = True
        return ingredients, tools


def build_tree(materials: Mapping[str, Mapping[str, Any]], recipes: Mapping[str, Mapping[str, Any]]) -> TechTree:
    """The tech tree of a configuration.

    Args:
        materials: by name `count`, pieces in the grid, and `tools`.
        recipes: by name `from`, amounts by item, `tools` and `makes`.

    Raises:
        ValueError: an entry has another key or a number below 1, or the tree is none (`TechTree`).
    """
    if both := sorted(set(materials) & set(recipes)):
        raise ValueError(f"sim: {both[0]!r} is in sim.materials and in sim.recipes; leave one of them")
    if not materials:
        raise ValueError("sim.materials is empty; name at least one, as {wood: {count: 8}}")
    for group, entries, keys in (("materials", materials, {"count", "tools"}), ("recipes", recipes, _RECIPE)):
        for name, entry in entries.items():
            if not isinstance(entry, Mapping) or (unknown := sorted(set(entry) - keys)):
                said = f"has {unknown}" if isinstance(entry, Mapping) else f"is {entry!r}"
                raise ValueError(f"sim.{group}.{name} {said}; it takes {sorted(keys)}")
            if isinstance(entry.get("tools", []), str) or not isinstance(entry.get("tools", []), Sequence):
                raise ValueError(f"sim.{group}.{name}.tools must be a list of items, got {entry['tools']!r}")
    counts, steps = {}, {}
    for name, entry in materials.items():
        counts[name] = _whole(f"materials.{name}.count", entry.get("count"))
        steps[name] = ItemRecipe({}, tuple(entry.get("tools", ())))
    for name, entry in recipes.items():
        ingredients = entry.get("from")
        if not isinstance(ingredients, Mapping) or not ingredients:
            raise ValueError(f"sim.recipes.{name}.from must have amounts by item, as {{wood: 1}}, got {ingredients!r}")
        amounts = {part: _whole(f"recipes.{name}.from.{part}", amount) for part, amount in ingredients.items()}
        steps[name] = ItemRecipe(
            amounts, tuple(entry.get("tools", ())), _whole(f"recipes.{name}.makes", entry.get("makes", 1))
        )
    return TechTree(counts, steps)


_RECIPE = {"from", "tools", "makes"}


def _whole(key: str, number: Any) -> int:
    if type(number) is not int or number < 1:
        raise ValueError(f"sim.{key} must be a whole number from 1 on, got {number!r}")
    return number
