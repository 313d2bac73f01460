"""Grade sentences by a principle: +b baba kade? is answered 31, since two b are worth 3 of 5 and none is worth 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
    split_reasons,
    write_question,
    write_reasons,
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
        reasons: the reply begins with the counts of each answer, from which the grades follow: 2,0=31.
        both_orders: problems 2 i and 2 i + 1 are one pair of answers in both orders, `Prompt.info["pair"]`.
        broken: share of the answers that are no sentences.
    """

    candidates: int = 2
    fewest: int | None = None
    principles: Sequence[str] = ()
    combined: float = 0.0
    ranked: bool = False
    binary: bool = False
    broken: float = 0.15
    reasons: bool = False
    both_orders: bool = False

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
        if self.both_orders and not self._fewest == self.candidates == 2:
            raise ValueError(
                f"task {self.name!r}: both_orders=true needs pairs, and questions have from {self._fewest} to "
                f"{self.candidates} answers; set candidates=2 fewest=null"
            )
        if wrong := [each for each in self.principles if not PRINCIPLE.fullmatch(each)]:
            raise ValueError(
                f"task {self.name!r}: a principle is one or more of + or - and a letter of {KINDS!r}, as +b-n; got "
                f"{wrong[0]!r}"
            )

    @property
    def _fewest(self) -> int:
        return self.candidates if self.fewest is None else self.fewest

    def problem(self, index: int) -> Problem:
        if not self.both_orders:
            return super().problem(index)
        pair = super().problem(index - index % 2)
        return Problem(pair.principle, pair.answers[::-1], pair.grades[::-1]) if index % 2 else pair

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
            answers = sorted(problem.answers) if self.both_orders else problem.answers
            return write_question(problem.principle, answers)
        parts = sorted(problem.principle[i : i + 2] for i in range(0, len(problem.principle), 2))
        return "".join(parts)

    def write_prompt(self, problem: Problem, key: str) -> Prompt:
        question = write_question(problem.principle, problem.answers)
        grades = problem.grades
        if self.binary:
            grades = tuple(HIGH if each >= SATISFIED else LOW for each in grades)
        info: dict[str, Any] = {"grades": grades, "principle": problem.principle, "answers": problem.answers}
        reasons = write_reasons(problem.principle, problem.answers)
        if self.reasons:
            info["reasons"] = reasons
        if self.both_orders:
            info["pair"] = write_question(problem.principle, sorted(problem.answers))
        return Prompt(key, ask_user(question), answer=self._write(problem.grades, reasons), info=info)

    def _write(self, grades: Sequence[int], reasons: str) -> str:
        """Write a reply, with the reasons where the task asks for them."""
        reply = write_verdicts(grades) if self.binary else write_reply(grades, self.ranked)
        return f"{reasons}={reply}" if self.reasons else reply

    def _read(self, text: str, count: int, parts: int) -> tuple[list[int] | None, str]:
        """Read the grades of a reply, None where it is unreadable, and its reasons."""
        reasons = ""
        if self.reasons:
            pieces = split_reasons(text, count, parts)
            if pieces is None:
                return None, ""
            reasons, text = pieces
        return read_verdicts(text, count) if self.binary else read_reply(text, count, self.ranked), reasons

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: all grades are right; format: readable, and the ranking agrees; tau: Kendall's tau-b with the right
        grades; match: 1 - the mean distance of grades / 4; accuracy: share of the pairs with different right grades
        that are in the right order, and exact where there is no such pair; margin: of such pairs, the signed difference
        of the grades / 4; where reasons are asked for, reasons: share of the answers whose counts are right.
        """
        right = prompt.info["grades"]
        grades, reasons = self._read(final_line(answer), len(right), len(prompt.info["principle"]) // 2)
        if grades is None:
            names = ("exact", "format", "tau", "match", "accuracy", "margin", *(["reasons"] if self.reasons else []))
            return dict.fromkeys(names, 0.0)
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
            **({"reasons": _share_equal(reasons, prompt.info["reasons"])} if self.reasons else {}),
        }

    def demonstrate(self, index: int) -> str:
        problem = self.problem(index)
        return self.write_answer(self._write(problem.grades, write_reasons(problem.principle, problem.answers)))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        count, parts = len(prompt.info["grades"]), len(prompt.info["principle"]) // 2
        grades = rng.integers(LOW, HIGH + 1, size=count).tolist()
        reasons = ["".join(map(str, rng.integers(LONGEST + 1, size=parts))) for _ in range(count)]
        return self.write_answer(self._write(grades, ",".join(reasons)))


def _share_equal(reasons: str, right: str) -> float:
    """Share of the answers whose counts are the right ones."""
    pairs = list(zip(reasons.split(","), right.split(","), strict=True))
    return sum(one == other for one, other in pairs) / len(pairs)
