"""Edits of small files by search and replace blocks."""

from tasks.edits.task import Edits

__all__ = ["Edits"]
