"""Jigsaw: photos cut into four tiles and shuffled."""

from tasks.jigsaw.task import Jigsaw

__all__ = ["Jigsaw"]
