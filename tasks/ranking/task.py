"""Rank the items of a list by one of their properties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.types import Prompt
from mmrl.rewards.measures import ndcg, ordered_pairs
from tasks.checks import check_range, final_line
from tasks.generated import GeneratedTask, ask_user, to_tuples

ITEMS = (
    *("apple", "bread", "chair", "drum", "engine", "flute", "glove", "hammer", "iron", "jar", "kite", "lamp", "mirror"),
    *("needle", "onion", "paper", "quilt", "rope", "spoon", "table", "umbrella", "vase", "wheel", "yarn"),
)
PROPERTIES = ("price", "weight", "age", "size")


@dataclass(frozen=True)
class Problem:
    """Items, their properties [items][properties], the property to rank by, and whether the largest comes first."""

    items: tuple[str, ...]
    values: tuple[tuple[int, ...], ...]
    by: int
    falling: bool

    def ranking(self) -> tuple[str, ...]:
        """The items in the right order."""
        pairs = sorted(zip(self.values, self.items), key=lambda pair: pair[0][self.by], reverse=self.falling)
        return tuple(item for _, item in pairs)


@dataclass(frozen=True)
class Ranking(GeneratedTask):
    """Items with numbers, to be written in the order of one property; no two items are equal in it.

    It is a stand-in for recommendation and list-wise ranking: IRanker (arXiv 2506.21638), Rec-R1 (arXiv 2503.24289).

    Args:
        items: fewest and most items, from 2 to 20.
        properties: of an item, from 1 to 4; one of them decides the order.
        largest: of the numbers.
    """

    items: Sequence[int] = (3, 6)
    properties: int = 2
    largest: int = 99

    name = "ranking"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "items")
        check_range(self.name, "items", self.items, 2, 20)
        check_interval(f"task {self.name!r}:", f"[1, {len(PROPERTIES)}]", properties=self.properties)
        check_at_least(self.items[1], f"task {self.name!r}:", largest=self.largest)

    def draw(self, rng: np.random.Generator) -> Problem:
        count = int(rng.integers(self.items[0], self.items[1] + 1))
        items = tuple(ITEMS[i] for i in rng.permutation(len(ITEMS))[:count])
        columns = [rng.permutation(self.largest)[:count] + 1 for _ in range(self.properties)]
        values = tuple(tuple(int(column[i]) for column in columns) for i in range(count))
        return Problem(items, values, int(rng.integers(self.properties)), bool(rng.integers(2)))

    def split_key(self, problem: Problem) -> str:
        return f"{sorted(zip(problem.items, problem.values))}"

    def write_prompt(self, problem: Problem, key: str) -> Prompt:
        names = PROPERTIES[: self.properties]
        lines = [
            f"{item}: {', '.join(f'{name} {value}' for name, value in zip(names, values))}"
            for item, values in zip(problem.items, problem.values)
        ]
        order = "largest" if problem.falling else "smallest"
        question = f"Rank by {PROPERTIES[problem.by]}, {order} first."
        return Prompt(key, ask_user("\n".join([*lines, question])), answer=" ".join(problem.ranking()))

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: all items in the right order; pairs: share of the pairs in the right order; ndcg: with gains n - 1 to
        0; format: each item once. Without the format all are 0.
        """
        right, order = prompt.answer.split(" "), final_line(answer).split(" ")
        if sorted(order) != sorted(right):
            return {"exact": 0.0, "pairs": 0.0, "ndcg": 0.0, "format": 0.0}
        gains = {item: float(len(right) - 1 - k) for k, item in enumerate(right)}
        return {
            "exact": float(order == right),
            "pairs": ordered_pairs(order, right),
            "ndcg": ndcg(order, gains),
            "format": 1.0,
        }

    def demonstrate(self, index: int) -> str:
        return self.write_answer(" ".join(self.problem(index).ranking()))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        items = prompt.answer.split(" ")
        return self.write_answer(" ".join(items[i] for i in rng.permutation(len(items))))
