"""Progress of crafting worlds: how many pieces are still to be had until the target."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
from gymnasium.vector import VectorEnv

from sims.craft.expert import find_lack
from sims.craft.world import CraftWorld


def count_lacking(world: CraftWorld) -> int:
    """Count the collections and makings until the target is had, in the expert's order; 0 where it was had.

    What the grid has left is not looked at.
    """
    if world.done:
        return 0
    plan, target, count = copy.copy(world), world.items.index(world.target), 0
    plan.held = world.held.copy()
    while True:
        item, count = find_lack(plan, target), count + 1
        if item == target:
            return count
        plan.held += world.makes[item] * (np.arange(len(plan.held)) == item) - world.ingredients[item]


@dataclass(frozen=True)
class RecipeProgress:
    """Progress of every world: minus the pieces that are still to be had until the target (`count_lacking`)."""

    def measure(self, env: VectorEnv) -> np.ndarray:
        """Progress float64 [n] of the worlds as they stand; 0 where the target was had."""
        return -np.array([count_lacking(world) for world in env.unwrapped.envs], np.float64)
