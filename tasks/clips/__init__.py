"""Clips: questions about a few frames of moving shapes."""

from tasks.clips.task import Clips

__all__ = ["Clips"]
