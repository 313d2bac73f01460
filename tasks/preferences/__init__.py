"""Preference pairs from a file."""

from tasks.preferences.task import Preferences

__all__ = ["Preferences"]
