"""Exact simulator of a search engine for the wiki: the page that a query names, or pages of other people."""

from __future__ import annotations

from functools import cached_property

from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.wiki.search import Search
from tasks.wiki.task import Wiki


class PageWriter:
    """Writes the documents of a simulated search: useful ones are the search's, noisy ones are pages of other people.

    Args:
        task: whose pages are written.
        top: pages of a call.
    """

    def __init__(self, task: Wiki, top: int = 1):
        self.search = Search(task, top)

    @cached_property
    def _titles(self) -> dict[str, int]:
        return {title: number for number, title in enumerate(self.search.titles)}

    def write(self, query: str, prompt: Prompt, useful: bool, seed: int) -> str:
        """Write pages for a query. Raises NotFound where it names nobody and they shall be useful."""
        if useful:
            return self.search.run(query)
        rng = derive_rng("noisy pages", seed)
        named = {self._titles[word] for word in query.split() if word in self._titles}
        others: list[int] = []
        while len(others) < self.search.top:
            number = int(rng.integers(len(self.search.pages)))
            if number not in named and number not in others:
                others.append(number)
        return "; ".join(self.search.pages[number] for number in others)
