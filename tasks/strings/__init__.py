"""Composed string functions: the output of f(g(x))."""

from tasks.strings.task import Strings

__all__ = ["Strings"]
