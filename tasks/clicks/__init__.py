"""Clicks on widgets of drawn windows."""

from tasks.clicks.task import Clicks

__all__ = ["Clicks"]
