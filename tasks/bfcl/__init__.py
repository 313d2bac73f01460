"""Requests of the Berkeley Function-Calling Leaderboard."""

from tasks.bfcl.task import Bfcl

__all__ = ["Bfcl"]
