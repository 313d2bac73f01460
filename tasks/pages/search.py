"""Search over rendered pages as a tool, which shows one page at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from mmrl.core.errors import check_at_least
from mmrl.core.types import Prompt
from mmrl.tools.base import BadArguments, ImageSource, ToolError, ToolOutput
from tasks.pages.task import Pages


class NoPageFound(ToolError):
    """No further page has a word of the query."""


class PageSearch(ImageSource):
    """Shows the page that fits a query best among those that the episode has not seen, by BM25 over the captions.

    Source: VRAG-RL, arXiv:2505.22019: one page a search. There a visual retriever ranks the pages.

    Args:
        task: whose pages are searched.
        ranked: number of pages that a query ranks.
    """

    timeout_s = 30.0

    def __init__(self, task: Pages, ranked: int = 8):
        if not isinstance(task, Pages):
            raise ValueError(f"this search knows the pages of task=pages alone, not those of {type(task).__name__}")
        check_at_least(1, "page search:", ranked=ranked)
        self.collection, self.ranked = task.collection, ranked
        self.seen: list[int] = []

    def start(self, prompt: Prompt) -> Self:
        search = type(self).__new__(type(self))
        search.__dict__ = {**vars(self), "seen": []}
        return search

    def run(self, query: str) -> ToolOutput:  # type: ignore[override]
        """
        Look for a page.

        Args:
            query: words that the page should have.
        """
        if not query.strip():
            raise BadArguments("write words to search for")
        number = next((n for n in self.collection.search(query, self.ranked) if n not in self.seen), None)
        if number is None:
            raise NoPageFound("no further page has one of these words")
        self.seen.append(number)
        self.shown = self.collection.draw(number)
        return ToolOutput(images=(self.shown,))

    def notes(self) -> Mapping[str, Any]:
        return {"pages": [self.collection.pages[number].caption for number in self.seen]}
