"""Generated databases: those of a problem, and further ones on which near misses of its query have other results."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from mmrl.core.rng import derive_seed
from tasks.sql.database import Result, is_ordered, match_rows, run_query
from tasks.sql.generator import Schema, fill_similar, fill_tables
from tasks.sql.mutants import mutate_query

_CANDIDATES = 60  # databases that are drawn at most, in search of one on which a near miss differs
_VAIN = 24  # of them after one another without such a one: the near misses that are left mean the same
_USUAL = (10, 20)  # numbers of rows that are like each other, for a query without a number


@dataclass(frozen=True)
class DrawnDatabases:
    """The databases of a problem, of the given seeds, and further ones that tell its query from near misses.

    They follow from the problem alone, and none of them changes what the policy reads.

    Args:
        schema: of all of them.
        seeds: of their rows.
        query: the right one.
    """

    schema: Schema
    seeds: tuple[int, ...]
    query: str

    def connect(self) -> Iterator[sqlite3.Connection]:
        thread = threading.get_ident()
        yield from (connect(self.schema, seed, thread) for seed in self.seeds)
        yield from _connect_further(self, thread)


@lru_cache(maxsize=1024)
def connect(schema: Schema, seed: int, thread: int, similar: tuple[int, ...] = ()) -> sqlite3.Connection:
    """Build a database in memory; each thread has its own.

    Args:
        schema: its tables.
        seed: of their rows.
        thread: that uses it.
        similar: numbers of `fill_similar`; () for rows of `fill_tables`.
    """
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    for statement in schema.statements():
        connection.execute(statement)
    for statement, rows in fill_similar(schema, seed, similar) if similar else fill_tables(schema, seed):
        connection.executemany(statement, rows)
    connection.commit()
    return connection


@lru_cache(maxsize=256)
def _connect_further(problem: DrawnDatabases, thread: int) -> tuple[sqlite3.Connection, ...]:
    """Open those candidates that kill a near miss which the databases of the seeds and all before let pass."""
    connections: list[sqlite3.Connection] = []
    alive = mutate_query(problem.query, problem.schema)
    for seed in problem.seeds:
        alive = _find_equal(alive, problem.query, connect(problem.schema, seed, thread))
    numbers = tuple(map(int, re.findall(r"\b[0-9]+\b", problem.query))) or _USUAL
    vain = 0
    for number in range(_CANDIDATES):
        if not alive or vain == _VAIN:
            break
        seed = derive_seed("sql", "near misses", *problem.seeds, number) % 2**31
        connection = connect(problem.schema, seed, thread, numbers)
        rest = _find_equal(alive, problem.query, connection)
        if len(rest) < len(alive) and not _is_empty(run_query(connection, problem.query)):
            connections.append(connection)
            alive, vain = rest, 0
        else:
            vain += 1
    return tuple(connections)


def _find_equal(queries: list[str], right: str, connection: sqlite3.Connection) -> list[str]:
    """Return the queries whose results on a database equal that of the right one."""
    target, ordered = run_query(connection, right), is_ordered(right)
    results = ((query, run_query(connection, query)) for query in queries)
    return [q for q, result in results if result.word == "ran" and match_rows(result.rows, target.rows, ordered)]


def _is_empty(result: Result) -> bool:
    """Whether an aggregate has no rows to be of; whether that is NULL or 0 is not part of a question."""
    return (None,) in result.rows
