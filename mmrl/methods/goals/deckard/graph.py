"""DECKARD's world model: a graph of guessed and verified recipes, the goals at its edge, and the way to a goal.

DECKARD, 2023, arXiv:2301.12050, section 4; released code, tech/techtree.py and tasks/base/techtree_wrapper.py.

- moving average of the success of a goal: `update_success`
- recipes of all items, guessed or verified: `RecipeGraph`
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RATE = 0.1
"""Weight of the last attempt in the average of the success."""
UNKNOWN = -1
MOST = 99
"""Pieces beyond which those that remain are not counted; guesses with cycles may never end."""


def update_success(average: float, achieved: bool, rate: float = RATE) -> float:
    """(1 - rate) s + rate [achieved], the moving average s of the success of a goal."""
    return (1 - rate) * average + rate * achieved


class RecipeGraph:
    """What each of I items is believed to take, which of it is verified, and how often each item was a goal.

    Attributes:
        ingredients: believed amounts, row i of item i, int64 [I, I].
        tools: believed tools, bool [I, I].
        guessed: whether a guide guessed how an item is had, bool [I].
        verified: whether an item was had, so that its row is the real one; C of the paper, bool [I].
        visits: times that an item was drawn as a goal, int64 [I].
        success: moving average of its success as a goal, float64 [I].
        first_step: decisions before an item was had first, -1 before that, int64 [I].
        counts: draws of goals, and decisions so far, int64 [2].

    Args:
        items: I.
    """

    ARRAYS = ("ingredients", "tools", "guessed", "verified", "visits", "success", "first_step", "counts")

    def __init__(self, items: int):
        self.ingredients = np.zeros((items, items), np.int64)
        self.tools = np.zeros((items, items), bool)
        self.guessed, self.verified = np.zeros(items, bool), np.zeros(items, bool)
        self.visits, self.success = np.zeros(items, np.int64), np.zeros(items)
        self.first_step, self.counts = np.full(items, UNKNOWN), np.zeros(2, np.int64)

    def guess(self, item: int, ingredients: np.ndarray, tools: np.ndarray) -> None:
        """Believe what a guide says that an item takes: amounts [I] and tools bool [I]."""
        self.ingredients[item], self.tools[item], self.guessed[item] = ingredients, tools, True

    def verify(self, item: int, ingredients: np.ndarray, tools: np.ndarray) -> None:
        """Put what an item really took, amounts [I] and tools bool [I], in the place of what was believed."""
        self.ingredients[item], self.tools[item] = ingredients, tools
        if not self.verified[item]:
            self.verified[item], self.first_step[item] = True, self.counts[1]

    def list_needs(self, item: int) -> list[int]:
        """Numbers of the tools, then of the ingredients that an item is believed to take."""
        return [*np.flatnonzero(self.tools[item]).tolist(), *np.flatnonzero(self.ingredients[item]).tolist()]

    def find_boundary(self, target: int | None = None) -> list[int]:
        """Guessed items that are not verified, and all of whose tools and ingredients are.

        Args:
            target: leave out items that are not on the way to this one, as it is believed; None for all.
        """
        useful = range(len(self.verified)) if target is None else self._list_ancestors(target)
        return [
            item
            for item in sorted(useful)
            if self.guessed[item] and not self.verified[item] and self.verified[self.list_needs(item)].all()
        ]

    def _list_ancestors(self, target: int) -> list[int]:
        ancestors = [target]
        for item in ancestors:
            ancestors += [need for need in dict.fromkeys(self.list_needs(item)) if need not in ancestors]
        return ancestors

    def list_candidates(self, target: int | None = None) -> list[int]:
        """Items that may be the next goal: boundary and verified ones; the target alone once it is verified.

        Where there is none, because the guesses of all items are wrong, every item is one.
        """
        if target is not None and self.verified[target]:
            return [target]
        verified = np.flatnonzero(self.verified).tolist()
        return sorted({*self.find_boundary(target), *verified}) or list(range(len(self.verified)))

    def draw_goal(self, rng: np.random.Generator, target: int | None = None) -> int:
        """Draw uniformly among the candidates that never were a goal, or among all if there is none; count it."""
        candidates = self.list_candidates(target)
        new = [item for item in candidates if not self.visits[item]]
        pool = new or candidates
        goal = pool[int(rng.integers(len(pool)))]
        self.visits[goal] += 1
        self.counts[0] += 1
        return goal

    def note(self, goal: int, achieved: bool) -> None:
        """Note whether a goal was achieved before it was given up."""
        self.success[goal] = update_success(float(self.success[goal]), achieved)

    def find_subgoal(self, goal: int, held: Sequence[int] | np.ndarray, path: tuple[int, ...] = ()) -> int:
        """The first item to have on the way to a goal: a missing tool, a missing ingredient, or the goal itself.

        What an item takes is followed down to an item of which nothing is missing. Guesses may have cycles: an item
        that is on the way already is passed over.

        Args:
            goal: number of the item.
            held: pieces of every item, [I].
            path: items on the way from the goal of the whole search.
        """
        way = (*path, goal)
        for need in self.list_needs(goal):
            missing = held[need] < max(int(self.ingredients[goal, need]), 1)
            if missing and need not in way:
                return self.find_subgoal(need, held, way)
        return goal

    def count_remaining(self, goal: int, held: Sequence[int] | np.ndarray) -> int:
        """Pieces that are to be had until the goal is, itself included, if each is had as it is believed; at most 99.

        Args:
            goal: number of the item, of which one more piece is wanted.
            held: pieces of every item, [I].
        """
        stock = np.array(held, np.int64)
        for count in range(1, MOST):
            item = self.find_subgoal(goal, stock)
            if item == goal:
                return count
            stock = np.maximum(stock - self.ingredients[item], 0)
            stock[item] += 1
        return MOST
