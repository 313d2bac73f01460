"""Questions about rendered scenes of coloured shapes."""

from tasks.scenes.attribute import Attribute
from tasks.scenes.counting import Counting
from tasks.scenes.detection import Detection
from tasks.scenes.grounding import Grounding
from tasks.scenes.pointing import Pointing
from tasks.scenes.spatial import Spatial
from tasks.scenes.statements import Statements
from tasks.scenes.trajectory import Trajectory

__all__ = ["Attribute", "Counting", "Detection", "Grounding", "Pointing", "Spatial", "Statements", "Trajectory"]
