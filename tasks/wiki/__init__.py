"""Multi-hop questions over a synthetic knowledge base, answered with a search tool."""

from tasks.wiki.search import Search
from tasks.wiki.task import Wiki

__all__ = ["Search", "Wiki"]
