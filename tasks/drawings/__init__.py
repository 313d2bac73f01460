"""Drawings: write the program that draws an image."""

from tasks.drawings.task import Drawings

__all__ = ["Drawings"]
