"""Grade how close a query is to the right one, as a judge of a small model learns it; and ask such a judge."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmrl.core.types import Episode, Prompt
from mmrl.rewards.judges.base import JudgeForm, NoAnswer
from mmrl.rewards.judges.questions import Question, Reply, Unreadable, answer_of, reference_of
from tasks.checks import final_line
from tasks.generated import GeneratedTask, ask_user
from tasks.sql.generator import draw_question, draw_schema
from tasks.sql.mutants import mutate_query
from tasks.sql.verify import tokenize

HIGH = 4
"""The best grade; the worst is 0."""
_LONGEST = 64  # tokens of a query that the judge reads
_CHANGES = 5  # of a right query at most, in a question


def grade_query(query: str, right: str) -> int:
    """Grade a query from 0 to 4: 4 minus the tokens to insert, delete or replace until it is the right one."""
    ours, theirs = tokenize(query), tokenize(right)
    row = list(range(len(theirs) + 1))
    for i, token in enumerate(ours, 1):
        last, row = row, [i]
        for j, other in enumerate(theirs, 1):
            row.append(min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (token != other)))
    return max(0, HIGH - row[-1])


def write_question(query: str, right: str) -> str:
    """Write a question: the tokens of the right query, and below them those of the query to grade."""
    return "\n".join(" ".join(tokenize(each)[:_LONGEST]) for each in (right, query)) + "\n"


@dataclass(frozen=True)
class QueryPair:
    """The right query, and one to grade."""

    right: str
    query: str


@dataclass(frozen=True)
class QueryGrades(GeneratedTask):
    """Grades of queries beside the right ones, in one digit: what a judge of the answers to `SQL` has to learn.

    The query to grade has up to five near misses in it, or answers another question. A right query is in one split.

    Args:
        joins: queries about two tables too.
        other: share of the queries that answer another question.
    """

    joins: bool = True
    other: float = 0.2

    name = "query_grades"

    def draw(self, rng: np.random.Generator) -> QueryPair:
        schema = draw_schema(rng)
        right = query = draw_question(rng, schema, self.joins)[1]
        if rng.random() < self.other:
            return QueryPair(right, draw_question(rng, schema, self.joins)[1])
        for _ in range(int(rng.integers(_CHANGES + 1))):
            changed = mutate_query(query, schema)
            query = changed[int(rng.integers(len(changed)))]
        return QueryPair(right, query)

    def split_key(self, problem: QueryPair) -> str:
        return problem.right

    def write_prompt(self, problem: QueryPair, key: str) -> Prompt:
        grade = grade_query(problem.query, problem.right)
        return Prompt(key, ask_user(write_question(problem.query, problem.right)), answer=str(grade))

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: the right digit; match: 1 - the distance of the grades / 4; format: a digit from 0 to 4."""
        grade, right = _read_grade(final_line(answer)), int(prompt.answer)
        if grade is None:
            return dict.fromkeys(("exact", "match", "format"), 0.0)
        return {"exact": float(grade == right), "match": 1 - abs(grade - right) / HIGH, "format": 1.0}

    def demonstrate(self, index: int) -> str:
        problem = self.problem(index)
        return self.write_answer(str(grade_query(problem.query, problem.right)))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer(str(int(rng.integers(HIGH + 1))))


@dataclass(frozen=True)
class Closeness(JudgeForm):
    """Score `judge` of a query: the grade of a judge that learned `QueryGrades`, scaled to [0, 1].

    Args:
        name: of the score.
    """

    name: str = "judge"

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        return [Question(write_question(answer_of(e), reference_of(e)), _read_reply) for e in group]

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        return [each if isinstance(each, NoAnswer) else {self.name: each / HIGH} for each in verdicts]


def _read_grade(text: str) -> int | None:
    return int(text) if re.fullmatch(rf"[0-{HIGH}]", text, re.ASCII) else None


def _read_reply(reply: Reply) -> int:
    grade = _read_grade(reply.text.strip())
    if grade is None:
        raise Unreadable(f"it is no grade from 0 to {HIGH}")
    return grade
