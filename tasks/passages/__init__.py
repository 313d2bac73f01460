"""Sentences of raw text to continue."""

from tasks.passages.task import Passages

__all__ = ["Passages"]
