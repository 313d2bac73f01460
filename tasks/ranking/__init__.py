"""Lists to rank by a property, and the next item of a history."""

from tasks.ranking.next_item import NextItem
from tasks.ranking.task import Ranking

__all__ = ["NextItem", "Ranking"]
