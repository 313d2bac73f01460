"""Lists to rank by a property."""

from tasks.ranking.task import Ranking

__all__ = ["Ranking"]
