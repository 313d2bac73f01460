"""Pairs of answers of which one is preferred, from a file."""

from tasks.preferences.task import Preferences

__all__ = ["Preferences"]
