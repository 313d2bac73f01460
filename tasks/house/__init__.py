"""Errands in a house in text, with many admissible actions of which few matter."""

from tasks.house.task import House

__all__ = ["House"]
