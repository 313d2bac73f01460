"""Arithmetic: sums, differences and products of small numbers."""

from tasks.arithmetic.task import Arithmetic

__all__ = ["Arithmetic"]
