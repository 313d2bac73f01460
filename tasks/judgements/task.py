"""Grade sentences by a principle: +b baba kade? is answered 31, since two b are worth 3 of 5 and none is worth 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_fraction
from mmrl.core.types import Prompt
from mmrl.rewards.measures import kendall_tau
from tasks.checks import check_range, final_line
from tasks.generated import GeneratedTask, ask_user, to_tuples
from tasks.grammar.language import LETTERS
from tasks.grammar.task import draw_sentence
from tasks.judgements.principles import (
    HIGH,
    KINDS,
    LONGEST,
    LOW,
    PRINCIPLE,
    SATISFIED,
    grade,
    read_reply,
    read_verdicts,
    write_question,
    write_reply,
    write_verdicts,
)


@dataclass(frozen=True)
class Problem:
    """A principle, the answers to grade, and their grades."""

    principle: str
    answers: tuple[str, ...]
    grades: tuple[int, ...]


@dataclass(frozen=True)
class Judgements(GeneratedTask):
    """Grades of sentences of the language of `tasks.grammar` by a stated principle, in a digit for each.

    Args:
        candidates: answers to grade in a question, from 1 to 8.
        fewest: a question has between `fewest` and `candidates` answers; None for always `candidates`.
        principles: of the questions; empty for all with one part, such as +b or -n.
        combined: share of the questions whose principle has two parts, such as +b-n. A combination is in one split
            alone, so that held-out ones are new.
        ranked: the reply ends with the ranking, which must not contradict the grades.
        binary: the reply says of each answer whether it satisfies the principle, a grade of at least 3: y or n.
        broken: share of the answers that are no sentences.
    """

    candidates: int = 2
    fewest: int | None = None
    principles: Sequence[str] = ()
    combined: float = 0.0
    ranked: bool = False
    binary: bool = False
    broken: float = 0.15

    name = "judgements"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "principles")
        check_range(self.name, "fewest, candidates", (self._fewest, self.candidates), 1, 8)
        check_fraction(f"task {self.name!r}:", combined=self.combined, broken=self.broken)
        if self.ranked and self.binary:
            raise ValueError(
                f"task {self.name!r}: ranked=true needs grades, and binary=true has none; set one to false"
            )
        if wrong := [each for each in self.principles if not PRINCIPLE.fullmatch(each)]:
            raise ValueError(
                f"task {self.name!r}: a principle is one or more of + or - and a letter of {KINDS!r}, as +b-n; got "
                f"{wrong[0]!r}"
            )

    @property
    def _fewest(self) -> int:
        return self.candidates if self.fewest is None else self.fewest

    def draw(self, rng: np.random.Generator) -> Problem | None:
        principle = self._draw_principle(rng)
        count = int(rng.integers(self._fewest, self.candidates + 1))
        answers = tuple(self._draw_answer(rng) for _ in range(count))
        grades = tuple(grade(principle, answer) for answer in answers)
        usable = len(grades) == 1 or len(set(grades)) > 1  # equal grades teach no comparison
        return Problem(principle, answers, grades) if usable else None

    def _draw_principle(self, rng: np.random.Generator) -> str:
        if rng.random() < self.combined:
            first, second = rng.permutation(len(KINDS))[:2]
            return "".join("+-"[int(rng.integers(2))] + KINDS[kind] for kind in (first, second))
        choices = self.principles or [sign + kind for sign in "+-" for kind in KINDS]
        return choices[int(rng.integers(len(choices)))]

    def _draw_answer(self, rng: np.random.Generator) -> str:
        sentence = draw_sentence(rng, LONGEST)
        if rng.random() >= self.broken:
            return sentence
        letters = [(LETTERS + "xy")[i] for i in rng.integers(len(LETTERS) + 2, size=int(rng.integers(1, LONGEST + 1)))]
        return "".join(letters)

    def split_key(self, problem: Problem) -> str:
        if len(problem.principle) == 2:
            return write_question(problem.principle, problem.answers)
        parts = sorted(problem.principle[i : i + 2] for i in range(0, len(problem.principle), 2))
        return "".join(parts)

    def write_prompt(self, problem: Problem, key: str) -> Prompt:
        question = write_question(problem.principle, problem.answers)
        grades = problem.grades
        if self.binary:
            grades = tuple(HIGH if each >= SATISFIED else LOW for each in grades)
        info = {"grades": grades, "principle": problem.principle}
        return Prompt(key, ask_user(question), answer=self._write(problem.grades), info=info)

    def _write(self, grades: Sequence[int]) -> str:
        return write_verdicts(grades) if self.binary else write_reply(grades, self.ranked)

    def _read(self, text: str, count: int) -> list[int] | None:
        return read_verdicts(text, count) if self.binary else read_reply(text, count, self.ranked)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: all grades are right; format: readable, and the ranking agrees; tau: Kendall's tau-b with the right
        grades; match: 1 - the mean distance of grades / 4; accuracy: share of the pairs with different right grades
        that are in the right order, and exact where there is no such pair; margin: of such pairs, the signed difference
        of the grades / 4.
        """
        right = prompt.info["grades"]
        grades = self._read(final_line(answer), len(right))
        if grades is None:
            return dict.fromkeys(("exact", "format", "tau", "match", "accuracy", "margin"), 0.0)
        span = HIGH - LOW
        pairs = [(i, j) for i in range(len(right)) for j in range(len(right)) if right[i] > right[j]]
        leads = [grades[i] - grades[j] for i, j in pairs]
        exact = float(tuple(grades) == tuple(right))
        return {
            "exact": exact,
            "format": 1.0,
            "tau": kendall_tau(grades, right),
            "match": 1 - sum(abs(a - b) for a, b in zip(grades, right)) / (span * len(right)),
            "accuracy": sum(lead > 0 for lead in leads) / len(leads) if leads else exact,
            "margin": sum(leads) / (span * max(len(leads), 1)),
        }

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self._write(self.problem(index).grades))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer(self._write(rng.integers(LOW, HIGH + 1, size=len(prompt.info["grades"])).tolist()))
