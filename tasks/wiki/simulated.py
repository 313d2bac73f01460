"""Exact simulator of a search engine for the wiki: the page that a query names, or pages of other people."""

from __future__ import annotations

from functools import cached_property

from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.wiki.search import NotFound, Search
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
        """Write pages for a query; NotFound where no page has a word of it, or where it names everybody."""
        if useful:
            return self.search.run(query)
        rng = derive_rng("noisy pages", seed)
        named = {self._titles[word] for word in query.split() if word in self._titles}
        order = rng.permutation(len(self.search.pages)).tolist()
        others = [number for number in order if number not in named][: self.search.top]
        if not others:
            raise NotFound(query[:50])
        return "; ".join(self.search.pages[number] for number in others)
