"""Image questions about receipts: printed names and prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Prompt
from tasks.charts.canvas import draw_receipt
from tasks.charts.verify import verify
from tasks.checks import check_range
from tasks.generated import GeneratedTask, ask_about_images, to_tuples

GOODS = ("apple", "bread", "cake", "eggs", "fish", "honey", "juice", "lemon", "milk", "nuts", "oats", "pasta", "rice")
QUESTIONS = {
    "price": "What does {a} cost?",
    "total": "What is the sum of all prices?",
    "count": "How many things were bought?",
    "dearest": "Which thing costs the most?",
}


@dataclass(frozen=True)
class ReceiptProblem:
    """The printed rows with prices in cents, a question, the name that it has, and the answer."""

    rows: tuple[tuple[str, int], ...]
    question: str
    asked: str
    answer: str


@dataclass(frozen=True)
class Receipts(GeneratedTask):
    """Questions about receipts with exact answers, such as "3.20". No receipt is in both splits.

    Args:
        questions: of price, total, count and dearest; a problem asks one of them.
        rows: fewest and most rows.
        cents: lowest and highest price in cents; prices are multiples of 5 and differ from each other.
        size: side of the image in pixels.
    """

    questions: Sequence[str] = ("price", "total", "count", "dearest")
    rows: Sequence[int] = (3, 6)
    cents: Sequence[int] = (50, 995)
    size: int = 96

    name = "receipts"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "questions", "rows", "cents")
        if not self.questions or not set(self.questions) <= set(QUESTIONS):
            raise ValueError(
                f"task {self.name!r}: questions must be of {', '.join(QUESTIONS)}, got {list(self.questions)}"
            )
        check_range(self.name, "rows", self.rows, 2, len(GOODS))
        if len(self.cents) != 2 or not 5 <= self.cents[0] <= self.cents[1] - 5 * self.rows[1]:
            raise ValueError(f"task {self.name!r}: cents must hold {self.rows[1]} multiples of 5, got {self.cents}")
        if self.size < 12 * self.rows[1]:
            raise ValueError(
                f"task {self.name!r}: letters need 12 pixels a row, got size={self.size} for {self.rows[1]} rows"
            )

    def draw(self, rng: np.random.Generator) -> ReceiptProblem:
        count = int(rng.integers(self.rows[0], self.rows[1], endpoint=True))
        names = [GOODS[i] for i in rng.permutation(len(GOODS))[:count].tolist()]
        lowest, highest = -(-self.cents[0] // 5), self.cents[1] // 5
        prices = ((rng.permutation(highest - lowest + 1)[:count] + lowest) * 5).tolist()
        question = self.questions[int(rng.integers(len(self.questions)))]
        place = int(rng.integers(count))
        answer = {
            "price": _write_price(prices[place]),
            "total": _write_price(sum(prices)),
            "count": str(count),
            "dearest": names[prices.index(max(prices))],
        }[question]
        return ReceiptProblem(tuple(zip(names, prices)), question, names[place], answer)

    def split_key(self, problem: ReceiptProblem) -> str:
        return repr(problem.rows)

    def write_prompt(self, problem: ReceiptProblem, key: str) -> Prompt:
        return Prompt(
            key,
            ask_about_images(QUESTIONS[problem.question].replace("{a}", problem.asked)),
            images=(draw_receipt([(name, _write_price(price)) for name, price in problem.rows], self.size),),
            answer=problem.answer,
            info={"question": problem.question, "rows": problem.rows},
        )

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return verify(answer, prompt.answer)

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        low, high = self.cents
        value = {
            "price": lambda: _write_price(int(rng.integers(low // 5, high // 5, endpoint=True)) * 5),
            "total": lambda: _write_price(int(rng.integers(low * self.rows[0] // 5, high * self.rows[1] // 5)) * 5),
            "count": lambda: str(rng.integers(self.rows[0], self.rows[1], endpoint=True)),
            "dearest": lambda: GOODS[int(rng.integers(len(GOODS)))],
        }[prompt.info["question"]]()
        return self.write_answer(value)

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self.problem(index).answer)


def _write_price(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02}"
