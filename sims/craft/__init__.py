"""Crafting world: a grid in which an agent collects materials and makes items by recipes."""

from sims.craft.sim import CraftSim

__all__ = ["CraftSim"]
