"""Reading handwritten digits."""

from tasks.digits.task import Digits

__all__ = ["Digits"]
