"""Handwritten digits to be read."""

from tasks.digits.task import Digits

__all__ = ["Digits"]
