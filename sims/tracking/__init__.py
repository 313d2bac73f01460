"""One human demonstration of an object's motion, which an arm follows in its own way."""

from sims.tracking.demonstration import DemonstrationFile, ScriptedHuman
from sims.tracking.sim import DemonstrationTracking

__all__ = ["DemonstrationFile", "DemonstrationTracking", "ScriptedHuman"]
