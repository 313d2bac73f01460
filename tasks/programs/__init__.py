"""Programs on short lists: predict the output, the input or the program, and propose problems (Absolute Zero)."""

from tasks.programs.task import Programs

__all__ = ["Programs"]
