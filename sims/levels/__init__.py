"""Levels: gymnasium environments whose parameters are chosen anew for every episode."""

from sims.levels.sim import GymLevelSim
from sims.levels.task import LevelTask

__all__ = ["GymLevelSim", "LevelTask"]
