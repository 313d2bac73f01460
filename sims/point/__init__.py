"""Point mass in a square room."""

from sims.point.sim import PointSim

__all__ = ["PointSim"]
