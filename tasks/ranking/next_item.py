"""Recommend the next item of a user's history: one item of a catalogue."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.checks import check_range, final_line
from tasks.generated import GeneratedTask, ask_user, to_tuples

LETTERS = "abcdefgh"


@dataclass(frozen=True)
class NextItem(GeneratedTask):
    """Histories of a Markov chain over items, with the item that follows as the answer.

    An item is a letter, its category, and a digit. After an item come `successors` others, drawn once for each item,
    with probabilities in proportion to 1, 1/2, 1/4 and so on: whoever knows the chain is right in a bit more than
    half of the problems with one item, and in all of them with `successors` items. It is a stand-in for generative
    recommendation: ReRe, 2025, arXiv:2510.12211.

    Args:
        categories: letters, from 1 to 8.
        per_category: items of a category, from 2 to 10.
        length: fewest and most items of a history, from 1 to 8.
        successors: items that can follow an item, fewer than there are items.
    """

    categories: int = 5
    per_category: int = 10
    length: Sequence[int] = (2, 4)
    successors: int = 4

    name = "next_item"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "length")
        check_range(self.name, "length", self.length, 1, 8)
        check_interval(f"task {self.name!r}:", f"[1, {len(LETTERS)}]", categories=self.categories)
        check_interval(f"task {self.name!r}:", "[2, 10]", per_category=self.per_category)
        if not 1 <= self.successors < self.categories * self.per_category:
            raise ValueError(
                f"task {self.name!r}: successors must be from 1 to {self.categories * self.per_category - 1}, the "
                f"number of other items, got {self.successors}"
            )

    def allowed_outputs(self) -> tuple[str, ...]:
        """All answers that name an item."""
        return tuple(self.write_answer(item) for item in self.items())

    def items(self) -> tuple[str, ...]:
        """The catalogue."""
        return tuple(f"{letter}{digit}" for letter in LETTERS[: self.categories] for digit in range(self.per_category))

    def draw(self, rng: np.random.Generator) -> tuple[str, ...]:
        items, after = self.items(), draw_successors(self.categories * self.per_category, self.successors, self.seed)
        chances = 0.5 ** np.arange(self.successors)
        place = int(rng.integers(len(items)))
        places = [place]
        for _ in range(int(rng.integers(self.length[0], self.length[1] + 1))):
            place = after[place][int(rng.choice(self.successors, p=chances / chances.sum()))]
            places.append(place)
        return tuple(items[place] for place in places)

    def split_key(self, problem: tuple[str, ...]) -> str:
        return " ".join(problem[:-1])

    def write_prompt(self, problem: tuple[str, ...], key: str) -> Prompt:
        return Prompt(key, ask_user(f"{' '.join(problem[:-1])}?"), answer=problem[-1])

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: the item that follows; format: an item of the catalogue."""
        item = final_line(answer)
        return {"exact": float(item == prompt.answer), "format": float(item in self.items())}

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self.problem(index)[-1])

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        items = self.items()
        return self.write_answer(items[int(rng.integers(len(items)))])


@functools.cache
def draw_successors(count: int, successors: int, seed: int) -> tuple[tuple[int, ...], ...]:
    """Draw the other items that follow each of `count` items, the most likely one first."""
    rng = derive_rng("next_item", "successors", seed)
    rows = ([int(i) for i in rng.permutation(count) if i != item][:successors] for item in range(count))
    return tuple(map(tuple, rows))
