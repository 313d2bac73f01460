"""A Python whose programs begin with torch, Lightning and transformers imported, for tests that start many of them."""

from tests.quick_python.program import quick_python

__all__ = ["quick_python"]
