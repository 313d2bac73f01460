"""Countdown: make a target out of given numbers."""

from tasks.countdown.task import Countdown

__all__ = ["Countdown"]
