"""Simulators whose environments are stepped and drawn in other processes."""

from sims.workers.sim import WorkerSim

__all__ = ["WorkerSim"]
