"""A collection of rendered pages, and the search over their captions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from mmrl.core.rng import derive_rng
from mmrl.tools.search.documents import Passage
from mmrl.tools.search.index import BM25Index, find_words
from tasks.acuity.patch import COLOURS, DIRECTIONS, GRAINS, PHASES, Patch, draw_image

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PLACES = 4  # cells a side in which a patch may lie
_SEARCH_S = 5.0


@dataclass(frozen=True)
class RenderedPage:
    """A page: its topic and the one striped patch on it."""

    topic: str
    patch: Patch

    @property
    def caption(self) -> str:
        return f"{self.topic} {self.patch.colour}"


@dataclass(frozen=True)
class Collection:
    """Pages on topics of two letters, one of each colour a topic.

    Args:
        topics: number of topics.
        size: side of a page in pixels.
        seed: of the pages.
    """

    topics: int
    size: int
    seed: int

    @cached_property
    def pages(self) -> tuple[RenderedPage, ...]:
        rng = derive_rng("pages", "collection", self.seed, self.topics)
        codes = rng.choice(len(_LETTERS) ** 2, self.topics, replace=False).tolist()
        names = [_LETTERS[code // len(_LETTERS)] + _LETTERS[code % len(_LETTERS)] for code in codes]
        return tuple(RenderedPage(name, self._draw_patch(colour, rng)) for name in names for colour in COLOURS)

    def _draw_patch(self, colour: str, rng: np.random.Generator) -> Patch:
        """Draw a patch that fills one of the cells below the heading."""
        side = self.size // _PLACES
        column, row = int(rng.integers(_PLACES)), int(rng.integers(1, _PLACES))
        direction = DIRECTIONS[int(rng.integers(len(DIRECTIONS)))]
        phase, grain = int(rng.integers(PHASES)), int(rng.integers(GRAINS))
        return Patch(colour, column * side, row * side, side, direction, phase, grain)

    @cached_property
    def _index(self) -> BM25Index:
        return BM25Index([Passage(str(number), page.caption) for number, page in enumerate(self.pages)])

    def search(self, query: str, count: int) -> list[int]:
        """The numbers of the `count` pages whose captions fit a query best, by BM25; equal ones in their order."""
        words = find_words(query)
        return [int(hit.passage.source) for hit in self._index.search(words, count, _SEARCH_S)] if words else []

    def draw(self, number: int) -> np.ndarray:
        """Render a page, uint8 [size, size, 3]: its topic as a heading, and the patch."""
        page = self.pages[number]
        image = Image.fromarray(draw_image([page.patch], self.size))
        height = self.size / _PLACES
        ImageDraw.Draw(image).text(
            (height / 4, height / 2), page.topic, fill="black", font=ImageFont.load_default(height * 0.8), anchor="lm"
        )
        return np.asarray(image)


@lru_cache(maxsize=8)
def find_collection(topics: int, size: int, seed: int) -> Collection:
    """The collection of these arguments; its pages and its index are built once."""
    return Collection(topics, size, seed)
