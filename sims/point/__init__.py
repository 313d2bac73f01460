"""A point that moves in a room: the smallest place to get about in."""

from sims.point.sim import PointSim

__all__ = ["PointSim"]
