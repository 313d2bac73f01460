"""Search tool over the pages of the wiki."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from mmrl.core.errors import check_at_least
from mmrl.tools.base import Tool, ToolError
from tasks.wiki.data import page
from tasks.wiki.task import Wiki


class NotFound(ToolError):
    """No page has a word of the query."""


class Search(Tool):
    """Returns the pages that fit a query best, by TF-IDF and cosine; titles count twice.

    Args:
        task: whose two knowledge bases are searched together.
        top: pages of an answer.
    """

    timeout_s = 5.0

    def __init__(self, task: Wiki, top: int = 1):
        if not isinstance(task, Wiki):
            raise ValueError(f"this search knows the pages of task=wiki alone, not those of {type(task).__name__}")
        check_at_least(1, "search", top=top)
        both = task.knowledge_bases
        facts = {name: values for split in sorted(both) for name, values in both[split].facts.items()}
        self.pages = [page(name, values) for name, values in facts.items()]
        self.titles = list(facts)
        self.top = top
        self._found: dict[str, str] = {}  # by query: the pages stay the same

    @cached_property
    def _index(self) -> tuple[TfidfVectorizer, Any]:
        words = TfidfVectorizer(token_pattern=r"[a-z0-9]+")
        return words, words.fit_transform([f"{title} {text}" for title, text in zip(self.titles, self.pages)])

    def run(self, query: str) -> str:  # type: ignore[override]
        """
        Look for pages of the wiki.

        Args:
            query: words that the page should have.
        """
        if query not in self._found:
            self._found[query] = self._find(query)
        return self._found[query]

    def _find(self, query: str) -> str:
        words, index = self._index
        fit = np.asarray((index @ words.transform([query]).T).todense()).ravel()
        best = np.argsort(-fit, kind="stable")[: self.top]
        result = [self.pages[i] for i in best if fit[i] > 0]
        if not result:
            raise NotFound(query[:50])
        return "; ".join(result)
