"""Named scores of a predicted query: execution, syntax, schema and n-grams."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Iterable
from functools import lru_cache

from mmrl.core.types import Episode
from mmrl.rewards.limits import LimitPassed, run_limited
from tasks.answers import AnswerTask
from tasks.sets import jaccard
from tasks.sql.database import SMALL, Databases, QueryLimits, Result, is_ordered, match_rows, run_query

_TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|[A-Za-z_][A-Za-z0-9_]*|[0-9]+(?:\.[0-9]+)?|<>|[<>!=]=|\S")
_WRITTEN = 10_000  # characters of a query that are compared
_ALL_S = 3600.0  # of all queries of an answer, the right ones included; each has limits of its own


def tokenize(query: str) -> list[str]:
    """Split a query into lower-case words, numbers and signs; texts in quotes stay as they are."""
    tokens = _TOKEN.findall(query[:_WRITTEN].strip().rstrip(";"))
    return [token if token.startswith(("'", '"')) else token.lower() for token in tokens]


def match_bigrams(query: str, right: str) -> float:
    """Jaccard index of the sets of pairs of neighbouring tokens."""
    pairs = [set(itertools.pairwise(tokens)) for tokens in (tokenize(query), tokenize(right))]
    return jaccard(*pairs)


def verify(
    query: str,
    right: str,
    connections: Iterable[sqlite3.Connection],
    limits: QueryLimits = SMALL,
    right_limits: QueryLimits = SMALL,
) -> tuple[dict[str, float], Result]:
    """exact: the result is that of the right query on every database; syntax: the query runs; schema: Jaccard index of
    the columns that both read; ngram: that of their bigrams; format: 1 if the query begins with SELECT or WITH.

    Results are multisets of rows, and sequences if the right query is ordered.
    Source: Pourreza et al., "Reasoning-SQL: Reinforcement Learning with SQL Tailored Partial Rewards for
    Reasoning-Enhanced Text-to-SQL", arXiv 2503.23157, section 3.

    Args:
        query: of the policy.
        right: query.
        connections: to the databases; after the first without a match none is opened.
        limits: of the policy's query.
        right_limits: of the right query.

    Returns the scores, and the first result of the query that is no match.

    Raises:
        ValueError: the right query does not run within its limits.
    """
    ordered, first, exact = is_ordered(right), Result("syntax_error", reason="no query"), bool(query.strip())
    target = Result("ran")
    for connection in connections:
        target = run_right(connection, right, right_limits)
        if target.word != "ran":
            raise ValueError(f"the right query does not run ({target.word} {target.reason}): {right}")
        if query.strip():
            first = run_query(connection, query, limits)
        exact = exact and first.word == "ran" and match_rows(first.rows, target.rows, ordered)
        if not exact:
            break
    return {
        "exact": float(exact),
        "syntax": float(first.word == "ran"),
        "schema": jaccard(first.columns, target.columns),
        **_compare_texts(query, right),
    }, first


def verify_limited(
    query: str, right: str, databases: Databases, limits: QueryLimits = SMALL, right_limits: QueryLimits = SMALL
) -> tuple[dict[str, float], str, str]:
    """Return the scores of `verify`, which runs in a worker process, the outcome of the query, and its reason.

    A query that passes its time inside one operation, or fills the memory, is "timed_out", "out_of_memory" or "died".
    """
    try:
        return run_limited(_ALL_S, _verify_databases, query, right, databases, limits, right_limits)
    except LimitPassed as error:
        zero = {"exact": 0.0, "syntax": 0.0, "schema": 0.0}
        return {**zero, **_compare_texts(query, right)}, error.outcome, str(error)


def _verify_databases(
    query: str, right: str, databases: Databases, limits: QueryLimits, right_limits: QueryLimits
) -> tuple[dict[str, float], str, str]:
    scores, result = verify(query, right, databases.connect(), limits, right_limits)
    return scores, result.word, result.reason


def _compare_texts(query: str, right: str) -> dict[str, float]:
    return {
        "ngram": match_bigrams(query, right),
        "format": float(query.lstrip().lower().startswith(("select", "with"))),
    }


@lru_cache(maxsize=1024)
def run_right(connection: sqlite3.Connection, query: str, limits: QueryLimits) -> Result:
    """Run the right query on a database whose rows do not change; each connection keeps its result."""
    return run_query(connection, query, limits)


def score_query(
    task: AnswerTask,
    episode: Episode,
    databases: Databases,
    limits: QueryLimits = SMALL,
    right_limits: QueryLimits = SMALL,
) -> dict[str, float]:
    """Score the query of an episode; `info` gets the outcome (right, wrong or the name of an error) and the reason."""
    query = task.read_answer(episode) or ""
    scores, word, reason = verify_limited(query, episode.prompt.answer, databases, limits, right_limits)
    word = word if word != "ran" else ("right" if scores["exact"] else "wrong")
    episode.info.update(outcome=word, reason=reason)
    return scores
