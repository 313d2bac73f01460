"""Programs of a few letters on short lists: to predict, to invert, to find, and to invent."""

from tasks.programs.task import Programs

__all__ = ["Programs"]
