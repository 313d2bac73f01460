"""Drawings: write the program or the SVG that draws an image."""

from tasks.drawings.svg_task import SVGDrawings
from tasks.drawings.task import Drawings

__all__ = ["Drawings", "SVGDrawings"]
