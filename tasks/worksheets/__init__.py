"""Worksheets of small sums: solve them, rate and criticise answers, and revise these by what was said."""

from tasks.worksheets.task import Worksheets

__all__ = ["Worksheets"]
