"""Questions about an invented world, whose facts only a search finds."""

from tasks.wiki.search import Search
from tasks.wiki.task import Wiki

__all__ = ["Search", "Wiki"]
