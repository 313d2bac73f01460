"""Jigsaw: photos cut into tiles and shuffled, and pieces of photos."""

from tasks.jigsaw.box import JigsawBox
from tasks.jigsaw.pair import JigsawPair
from tasks.jigsaw.task import Jigsaw

__all__ = ["Jigsaw", "JigsawBox", "JigsawPair"]
