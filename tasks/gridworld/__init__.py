"""Gridworld in text or images: walk to a goal, through locked doors whose keys lie around."""

from tasks.gridworld.task import GridWorld

__all__ = ["GridWorld"]
