"""Simulators from environments that are registered with gymnasium."""

from sims.gym.sim import GymSim

__all__ = ["GymSim"]
