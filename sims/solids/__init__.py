"""Still scenes of solids on a table, for the questions of tasks/scenes."""

from sims.solids.painter import SolidPainter, SolidScene

__all__ = ["SolidPainter", "SolidScene"]
