"""Mazes: find a path, written in the letters U, D, L and R."""

from tasks.mazes.task import Mazes

__all__ = ["Mazes"]
