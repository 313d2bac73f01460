"""The crafting world as a simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mmrl.core.errors import check_at_least
from mmrl.core.types import Sim
from sims.craft.expert import choose_action
from sims.craft.tree import TechTree, build_tree
from sims.craft.vector import CraftVectorEnv
from sims.craft.world import COLLECT, CraftWorld


@dataclass(frozen=True)
class CraftSim(Sim):
    """Grids in which an agent collects materials and makes items by recipes until it has the target.

    Observations float32 [4 M + I] of M materials and I items are those of `CraftWorld.observe`; with `subgoals` I
    further numbers follow, which are 0 here and in which methods write the item that is wanted next. The reward is 1
    for the target, which ends the episode. Scores: `success`, and `skill/<item>`, whether the item was had.

    Args:
        materials: by name `count`, pieces in the grid, and `tools`, what must be held to collect them.
        recipes: by name `from`, amounts by item, `tools`, which are not used up, and `makes`, pieces that it gives (1).
        target: the item that ends an episode.
        size: fields of a side of the grid.
        max_steps: decisions until time is up.
        subgoals: whether the observation has room for a subgoal.

    Raises:
        ValueError: with the key and the item, what is wrong: an unknown item, a cycle, a target that cannot be reached,
            or more pieces than fields.
    """

    materials: Mapping[str, Any]
    recipes: Mapping[str, Any]
    target: str
    size: int = 8
    max_steps: int = 200
    subgoals: bool = False

    name = "craft"

    def __post_init__(self) -> None:
        check_at_least(2, "sim", size=self.size)
        check_at_least(1, "sim", max_steps=self.max_steps)
        self.tree.check_target(self.target)
        pieces = sum(self.tree.counts.values())
        if pieces >= self.size**2:
            raise ValueError(
                f"sim.size={self.size}: {pieces} pieces of material and an agent need as many fields of their own, and "
                f"there are {self.size**2}; raise sim.size or lower a count of sim.materials"
            )

    @cached_property
    def tree(self) -> TechTree:
        """The tech tree of materials and recipes."""
        return build_tree(self.materials, self.recipes)

    @property
    def items(self) -> list[str]:
        """Names of the items, materials first."""
        return self.tree.items

    @property
    def needs(self) -> tuple[np.ndarray, np.ndarray]:
        """Ingredients and tools of every item, as `TechTree.needs`."""
        return self.tree.needs()

    def make_world(self) -> CraftWorld:
        """One world, to be reset."""
        return CraftWorld(self.tree, self.target, self.size, self.max_steps)

    def make(self, num_envs: int) -> CraftVectorEnv:
        return CraftVectorEnv([self.make_world() for _ in range(num_envs)], self.subgoals)

    def sizes(self) -> dict[str, Any]:
        items, materials = len(self.items), len(self.tree.counts)
        observed = 4 * materials + items * (2 if self.subgoals else 1)
        actions = COLLECT + 1 + items - materials
        return {
            "observation_dims": observed, "actions": actions, "kind": "categorical", "low": -1.0, "high": 1.0,
            "items": items,
        }  # fmt: skip

    def contract(self) -> dict[str, Any]:
        """Entries that must be equal for results to be comparable."""
        steps = {name: [dict(step.ingredients), list(step.tools), step.makes] for name, step in self.tree.steps.items()}
        plain = {name: getattr(self, name) for name in ("target", "size", "max_steps", "subgoals")}
        return {"sim": self.name, **plain, "counts": dict(self.tree.counts), "steps": steps}

    def expert(self, env: CraftVectorEnv) -> np.ndarray:
        """The expert's actions int64 [n] in the environments as they stand."""
        return np.array([choose_action(world) for world in env.envs])

    def demonstrate(self, seeds: Sequence[int]) -> list[list[tuple[Mapping[str, Any], Any]]]:
        """Observations and actions of the expert's episodes from these seeds."""
        return [self._demonstrate(seed) for seed in seeds]

    def _demonstrate(self, seed: int) -> list[tuple[Mapping[str, Any], Any]]:
        env, decisions = self.make(1), []
        observation, _ = env.reset(seed=[seed])
        while not env.over[0]:
            actions = self.expert(env)
            decisions.append(({"state": observation[0]}, actions[0]))
            observation, *_ = env.step(actions)
        return decisions
