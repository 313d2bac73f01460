"""Grid worlds with subgoals on the way to a distant reward."""

from sims.subgoals.sim import SubgoalSim

__all__ = ["SubgoalSim"]
