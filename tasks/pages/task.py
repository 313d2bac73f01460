"""Question about a detail of a page that has to be found first: in which direction do its stripes run?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.types import Prompt
from tasks.acuity.patch import PERIOD
from tasks.checks import final_line
from tasks.generated import GeneratedTask, ask_user
from tasks.pages.collection import Collection, RenderedPage, find_collection
from tasks.pages.words import DIRECTION_OF, WORDS, means

_MOST_TOPICS = 500  # of 676 codes of two letters


@dataclass(frozen=True)
class PageQuestion:
    """What is asked about a page: its number, and which of the words for the direction is the right answer."""

    number: int
    word: int
    vague: bool  # whether the script searches for the topic first


@dataclass(frozen=True)
class Pages(GeneratedTask):
    """Questions about the stripes of a patch on one of many pages, of which a search shows one at a time.

    The question shows no image. With `PageSearch` the policy finds the page, with `Crop` or `Zoom` beside it the policy
    sees the stripes, which the whole page does not show at a low resolution.

    Source: task of VRAG-RL, arXiv:2505.22019, with search, crops and answer; the pages are ours.

    Args:
        topics: number of topics of the collection, with four pages each.
        size: side of a page in pixels.
        units: number of cells across a page in which the script names boxes.
        vague: share of the scripts that search for the topic alone first, which four pages have.
        question: the user's turn; {caption} stands for topic and colour of the page.
    """

    topics: int = 200
    size: int = 128
    units: int = 4
    vague: float = 0.0
    question: str = "{caption}?"

    name = "pages"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(f"task {self.name!r}:", vague=self.vague)
        check_at_least(1, f"task {self.name!r}:", units=self.units)
        if not 1 <= self.topics <= _MOST_TOPICS:
            raise ValueError(f"task {self.name!r}: topics must lie between 1 and {_MOST_TOPICS}, got {self.topics}")
        if self.size < 8 * PERIOD:
            raise ValueError(
                f"task {self.name!r}: size must be at least {8 * PERIOD} pixels, so that a patch of a quarter of it "
                f"has stripes, got {self.size}"
            )

    @property
    def collection(self) -> Collection:
        """The pages of both splits: their questions differ, and the search is over all."""
        return find_collection(self.topics, self.size, self.seed)

    def page(self, index: int) -> RenderedPage:
        """The page that a problem asks about."""
        return self.collection.pages[self.problem(index).number]

    def draw(self, rng: np.random.Generator) -> PageQuestion:
        number = int(rng.integers(len(self.collection.pages)))
        return PageQuestion(number, int(rng.integers(len(WORDS["rising"]))), bool(rng.random() < self.vague))

    def split_key(self, problem: PageQuestion) -> str:
        return self.collection.pages[problem.number].caption

    def write_prompt(self, problem: PageQuestion, key: str) -> Prompt:
        page = self.collection.pages[problem.number]
        answer = WORDS[page.patch.direction][problem.word]
        info = {"pages": [page.caption], "box": page.patch.box}
        return Prompt(key, ask_user(self.question.replace("{caption}", page.caption)), answer=answer, info=info)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: a word for the right direction; words: the right word; format: a word for some direction."""
        final = final_line(answer)
        same = {"exact": float(means(final, str(prompt.answer))), "words": float(final == prompt.answer)}
        return {**same, "format": float(final in DIRECTION_OF)}

    def demonstrate(self, index: int) -> str:
        return self.write_answer(str(self[index].answer))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer(list(DIRECTION_OF)[int(rng.integers(len(DIRECTION_OF)))])

    def script(self, index: int) -> list[str]:
        page = self.page(index)
        x1, y1, x2, y2 = (edge * self.units // self.size for edge in page.patch.box)
        box = f"[{x1} {y1} {max(x2, x1 + 1)} {max(y2, y1 + 1)}]"
        vague = [f"?{page.topic}]"] if self.problem(index).vague else []
        return [*vague, f"?{page.caption}]", box, self.demonstrate(index)]
