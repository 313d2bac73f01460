"""Write an SQL query for a question; its result is compared on databases that the policy does not see."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_interval
from mmrl.core.types import Episode, Prompt
from tasks.generated import GeneratedTask, ask_user
from tasks.sql.database import match_rows, run_query
from tasks.sql.drawn import DrawnDatabases, connect
from tasks.sql.generator import Schema, draw_question, draw_schema
from tasks.sql.verify import score_query, verify_limited


@dataclass(frozen=True)
class Problem:
    """A question about a schema, the query that answers it, and the seeds of the rows of each database."""

    schema: Schema
    question: str
    query: str
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class SQL(GeneratedTask):
    """Questions over generated schemas, answered by a query on SQLite; a held-out schema is never trained on.

    A query is right if its result is that of the right query on each of several databases, as a multiset of rows, or as
    a sequence where the right query has ORDER BY. A constant that is right on one database is wrong on another. Further
    databases are drawn until near misses of the right query, such as > for >=, have other results on one of them.

    Args:
        databases: with different rows, on which a query is compared.
        joins: also ask about two tables.
    """

    databases: int = 3
    joins: bool = True

    name = "sql"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval(f"task {self.name!r}:", "[2, 20]", databases=self.databases)

    def draw(self, rng: np.random.Generator) -> Problem | None:
        schema = draw_schema(rng)
        if self.split_of(schema) != self.split:
            return None  # before its databases are built
        question, query = draw_question(rng, schema, self.joins)
        problem = Problem(schema, question, query, tuple(int(s) for s in rng.integers(2**31, size=self.databases)))
        results = [run_query(connect(schema, seed, threading.get_ident()), query).rows for seed in problem.seeds]
        empty = any(row in ((), (None,)) for rows in results for row in rows) or not all(results)
        # a query that returns the same on all databases could be replaced by a constant
        return None if empty or all(match_rows(results[0], rows, False) for rows in results[1:]) else problem

    def split_of(self, problem: Problem | Schema) -> str:
        return super().split_of(problem.schema if isinstance(problem, Problem) else problem)

    def split_key(self, problem: Schema) -> str:
        """The tables and their columns in any order: a schema with its columns in another order is the same one."""
        columns = (sorted(each) for each in (problem.numbers, problem.texts, problem.amounts))
        return repr((problem.entity, problem.item, *columns))

    def write_prompt(self, problem: Problem, key: str) -> Prompt:
        text = "\n".join([*(f"{one};" for one in problem.schema.statements()), f"-- {problem.question}"])
        info = {"schema": problem.schema, "seeds": problem.seeds}
        return Prompt(key, ask_user(text), answer=problem.query, info=info)

    def score(self, episode: Episode) -> dict[str, float]:
        return score_query(self, episode, _list_databases(episode.prompt))

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return verify_limited(answer, prompt, _list_databases(prompt))[0]

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self.problem(index).query)

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer(draw_question(rng, draw_schema(rng), self.joins)[1])


def _list_databases(prompt: Prompt) -> DrawnDatabases:
    return DrawnDatabases(prompt.info["schema"], prompt.info["seeds"], prompt.answer)
