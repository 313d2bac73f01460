"""NoisySearch: a document search that answers a share of the queries with random passages."""

from __future__ import annotations

import copy
from typing import Any

from mmrl.core.errors import check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from mmrl.tools.search.documents import Passage
from mmrl.tools.search.tool import DocumentSearch


class NoisySearch(DocumentSearch):
    """DocumentSearch that returns as many random passages in place of the best ones, for a share of the queries.

    A draw depends on the seed, the prompt and the query: a query has one result in all episodes of a prompt, and one
    that is noisy at a share is noisy at every larger one. With a schedule of `noise` training goes from a good
    retriever to a bad one, or back; held-out problems have the share of the last iteration.

    Args:
        path: folder of the documents, and further options as of DocumentSearch.
        noise: share of the queries with random passages.
        seed: of the draws.
    """

    def __init__(self, path: str, noise: float = 0.5, seed: int = 0, **options: Any):
        super().__init__(path, **options)
        self.noise, self.seed, self.prompt_key = noise, seed, ""

    @property
    def noise(self) -> float:
        return self._noise

    @noise.setter
    def noise(self, value: float) -> None:
        check_interval("rollout.tools.search:", "[0, 1]", noise=value)
        self._noise = value

    def start(self, prompt: Prompt) -> NoisySearch:
        tool = copy.copy(self)
        tool.prompt_key = prompt.key
        return tool

    def find_passages(self, query: str) -> list[Passage]:
        passages = super().find_passages(query)
        rng = derive_rng("noisy search", self.seed, self.prompt_key, query)
        if rng.random() >= self.noise:
            return passages
        return self.index.read([int(number) for number in rng.integers(len(self.index), size=len(passages))])
