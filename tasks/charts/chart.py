"""Image questions about bar, line and pie charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Prompt
from tasks.charts.canvas import PALETTE, draw_bars, draw_line, draw_pie
from tasks.charts.verify import verify
from tasks.checks import check_range
from tasks.generated import GeneratedTask, ask_about_images, to_tuples

DRAW = {"bar": draw_bars, "line": draw_line, "pie": draw_pie}
LETTERS = "ABCDEFHJKLMNPRTUVXYZ"
QUESTIONS = {
    "value": "Value of {a}?",
    "maximum": "Which is the largest?",
    "minimum": "Which is the smallest?",
    "difference": "By how much do {a} and {b} differ?",
    "sum": "Sum of {a} and {b}?",
    "count": "How many are larger than {a}?",
}


@dataclass(frozen=True)
class ChartProblem:
    """A chart, a question about it, the names that the question has, and the answer."""

    kind: str
    names: tuple[str, ...]
    values: tuple[int, ...]
    question: str
    asked: tuple[str, ...]
    answer: str


@dataclass(frozen=True)
class Charts(GeneratedTask):
    """Questions about charts of whole numbers, with exact answers. No list of values is in both splits.

    Args:
        kinds: of bar, line and pie; a problem has one of them.
        questions: of value, maximum, minimum, difference, sum and count; a problem asks one of them.
        entries: fewest and most entries, at most 6.
        most: largest value; values start at 1 and differ from each other.
        size: side of the image in pixels.
    """

    kinds: Sequence[str] = ("bar", "line", "pie")
    questions: Sequence[str] = ("value", "maximum", "difference", "count")
    entries: Sequence[int] = (3, 5)
    most: int = 10
    size: int = 64

    name = "charts"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "kinds", "questions", "entries")
        for key, choices in (("kinds", DRAW), ("questions", QUESTIONS)):
            if not getattr(self, key) or not set(getattr(self, key)) <= set(choices):
                raise ValueError(f"task {self.name!r}: {key} must be of {', '.join(choices)}, got {getattr(self, key)}")
        check_range(self.name, "entries", self.entries, 2, min(len(PALETTE), self.most))
        if self.most > 50 or self.size < 48:
            raise ValueError(
                f"task {self.name!r}: most must be at most 50 and size at least 48, got {self.most} and {self.size}"
            )

    def draw(self, rng: np.random.Generator) -> ChartProblem:
        count = int(rng.integers(self.entries[0], self.entries[1], endpoint=True))
        names = tuple(LETTERS[i] for i in sorted(rng.permutation(len(LETTERS))[:count].tolist()))
        values = tuple((rng.permutation(self.most)[:count] + 1).tolist())
        kind = self.kinds[int(rng.integers(len(self.kinds)))]
        question = self.questions[int(rng.integers(len(self.questions)))]
        a, b = rng.permutation(count)[:2].tolist()
        answer = {
            "value": values[a],
            "maximum": names[values.index(max(values))],
            "minimum": names[values.index(min(values))],
            "difference": abs(values[a] - values[b]),
            "sum": values[a] + values[b],
            "count": sum(value > values[a] for value in values),
        }[question]
        return ChartProblem(kind, names, values, question, (names[a], names[b]), str(answer))

    def split_key(self, problem: ChartProblem) -> str:
        return repr(problem.values)

    def write_prompt(self, problem: ChartProblem, key: str) -> Prompt:
        a, b = problem.asked
        return Prompt(
            key,
            ask_about_images(QUESTIONS[problem.question].replace("{a}", a).replace("{b}", b)),
            images=(DRAW[problem.kind](problem.names, problem.values, self.most, self.size),),
            answer=problem.answer,
            info={"kind": problem.kind, "question": problem.question, "names": problem.names, "values": problem.values},
        )

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return verify(answer, prompt.answer)

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        lowest, highest = {
            "difference": (1, self.most - 1),
            "sum": (3, 2 * self.most - 1),
            "count": (0, self.entries[1] - 1),
        }.get(prompt.info["question"], (1, self.most))
        names = prompt.info["question"] in ("maximum", "minimum")
        value = LETTERS[int(rng.integers(len(LETTERS)))] if names else rng.integers(lowest, highest, endpoint=True)
        return self.write_answer(str(value))

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self.problem(index).answer)
