"""A table, a seven-joint arm, coloured things: MuJoCo scenes of our own, pictures without GL."""

from sims.tabletop.experts import expert
from sims.tabletop.sims import Push, Reach

__all__ = ["Push", "Reach", "expert"]
