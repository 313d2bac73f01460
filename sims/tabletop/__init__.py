"""A table, a seven-joint arm, coloured things: MuJoCo scenes of our own, pictures without GL."""

from sims.tabletop.expert import expert
from sims.tabletop.sim import Reach

__all__ = ["Reach", "expert"]
