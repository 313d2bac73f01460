"""The crafting world with a reward for the first piece of each item, whose episodes can begin in configured worlds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sims.craft.sim import CraftSim
from sims.craft.tree import TechTree
from sims.craft.vector import CraftVectorEnv
from sims.craft.world import CraftWorld

RARITIES = {"very common": 2.0, "common": 1.0, "rare": 0.5}
"""Pieces of a material in a configured world, as multiples of those of the original, rounded up."""
MOST_HELD = 9
"""Most pieces of an item that an episode can begin with; of a tool 1."""
Configuration = Mapping[str, Mapping[str, Any]]
"""`rarity`, by material, and `inventory`, pieces by item; {} is the original world."""


class ConfiguredWorld(CraftWorld):
    """A crafting world that pays 1 for the first piece of each item that is had in an episode.

    What an episode begins with was not had in it, and pays only when it is had again.
    """

    configuration: Configuration = {}

    def reset(self, seed: int) -> None:
        """Place materials and agent as `CraftWorld.reset`, as many and with the stock that the configuration says."""
        original = self.tree
        self.tree = replace(original, counts=count_pieces(self.configuration, original))
        super().reset(seed)
        self.tree = original
        for name, number in self.configuration.get("inventory", {}).items():
            self.held[self.items.index(name)] = number

    def step(self, action: int) -> float:
        before = int(self.had.sum())
        super().step(action)
        return float(int(self.had.sum()) - before)


class ConfiguredVectorEnv(CraftVectorEnv):
    """Crafting worlds whose `reset` takes `options["configurations"]`, one for each environment.

    Without it all begin in the original world.
    """

    envs: list[ConfiguredWorld]  # type: ignore[assignment]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        configurations = (options or {}).get("configurations", [{}] * self.num_envs)
        for i in np.flatnonzero(mask):
            self.envs[i].configuration = configurations[i]
        return super().reset(seed=seed, options=options)


class ConfiguredCraftSim(CraftSim):
    """`CraftSim` that pays 1 for each item when it is had first in an episode; the target ends an episode still.

    Episodes begin in the original world, or in one with other numbers of pieces and a stock (`Configuration`).
    """

    name = "craft_worlds"

    def make_world(self) -> ConfiguredWorld:
        return ConfiguredWorld(self.tree, self.target, self.size, self.max_steps)

    def make(self, num_envs: int) -> ConfiguredVectorEnv:
        return ConfiguredVectorEnv([self.make_world() for _ in range(num_envs)], self.subgoals)

    @property
    def settings(self) -> list[str]:
        """What a configuration may say of a world, one line each."""
        return [
            f'"rarity": by material ({", ".join(self.tree.counts)}) one of {", ".join(RARITIES)}',
            f'"inventory": by item what an episode begins with, 0 to {MOST_HELD} pieces and of a tool at most 1, of '
            f"{self.target} none",
        ]

    def check_configuration(self, configuration: Any) -> None:
        """Refuse what is no configuration of this world.

        Raises:
            ValueError: with the key, what is wrong and what may stand there.
        """
        if not isinstance(configuration, dict):
            raise ValueError(f"a configuration is an object with rarity and inventory, got {str(configuration)[:80]}")
        for key, entries in configuration.items():
            if key not in ("rarity", "inventory"):
                raise ValueError(f"{key}: no such setting; there are rarity and inventory")
            if not isinstance(entries, dict):
                raise ValueError(f"{key}: give an object by name, got {str(entries)[:80]}")
        for name, rarity in configuration.get("rarity", {}).items():
            if name not in self.tree.counts:
                raise ValueError(f"rarity.{name}: no such material; there are {', '.join(self.tree.counts)}")
            if not isinstance(rarity, str) or rarity not in RARITIES:
                raise ValueError(f"rarity.{name}: write {', '.join(RARITIES)}, got {rarity!r}")
        for name, number in configuration.get("inventory", {}).items():
            self._check_stock(name, number)
        pieces = sum(count_pieces(configuration, self.tree).values())
        if pieces >= self.size**2:
            raise ValueError(
                f"rarity: {pieces} pieces and an agent do not fit on {self.size**2} fields; make a material rarer"
            )

    def _check_stock(self, name: str, number: Any) -> None:
        if name not in self.items:
            raise ValueError(f"inventory.{name}: no such item; there are {', '.join(self.items)}")
        if name == self.target:
            raise ValueError(f"inventory.{name}: the target ends an episode, so none can begin with it")
        most = 1 if any(name in step.tools for step in self.tree.steps.values()) else MOST_HELD
        if type(number) is not int or not 0 <= number <= most:
            raise ValueError(f"inventory.{name}: a whole number from 0 to {most}, got {number!r}")


def count_pieces(configuration: Configuration, tree: TechTree) -> dict[str, int]:
    """Pieces of each material in a configured world."""
    rarity = configuration.get("rarity", {})
    return {name: int(np.ceil(count * RARITIES[rarity.get(name, "common")])) for name, count in tree.counts.items()}
