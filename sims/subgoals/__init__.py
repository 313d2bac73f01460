"""Grid worlds whose training episodes come with a list of subgoals that somebody wrote beforehand."""

from sims.subgoals.sim import SubgoalSim

__all__ = ["SubgoalSim"]
