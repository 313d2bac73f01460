"""Named scores of a predicted query: execution, syntax, schema and n-grams."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from mmrl.core.types import Episode, Prompt
from mmrl.rewards.limits import LimitPassed, run_limited
from mmrl.rewards.worker import CallRaised
from tasks.answers import AnswerTask
from tasks.sets import jaccard
from tasks.sql.database import SMALL, Databases, QueryLimits, Result, is_ordered, match_rows, run_query

_TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|[A-Za-z_][A-Za-z0-9_]*|[0-9]+(?:\.[0-9]+)?|<>|[<>!=]=|\S")
_WRITTEN = 10_000  # characters of a query that are compared
_ALL_S = 3600.0  # of all queries of an answer, the right ones included; each has limits of its own
_MOST_RESULTS = 1024  # of right queries that a process remembers
_ROW = "correct the row, or leave it out"


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
        target = _need_right(connection, right, right_limits)
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
    query: str,
    prompt: Prompt,
    databases: Databases,
    limits: QueryLimits = SMALL,
    right_limits: QueryLimits = SMALL,
) -> tuple[dict[str, float], str, str]:
    """Return the scores of `verify`, which runs in a worker process, the outcome of the query, and its reason.

    A query that passes its time inside one operation, or fills the memory, is "timed_out", "out_of_memory" or "died".

    Raises:
        ValueError: the right query does not run within its limits, with the place of its row.
    """
    right = prompt.answer
    try:
        return run_limited(_ALL_S, _verify_databases, query, right, databases, limits, right_limits)
    except CallRaised as error:
        raise _explain_row(error, prompt) from error
    except LimitPassed as error:
        _check_right(prompt, databases, right_limits)
        zero = {"exact": 0.0, "syntax": 0.0, "schema": 0.0}
        return {**zero, **_compare_texts(query, right)}, error.outcome, str(error)


def _check_right(prompt: Prompt, databases: Databases, limits: QueryLimits) -> None:
    """Refuse a right query that passes its limits alone: the query of the policy is not to blame then."""
    try:
        run_limited(_ALL_S, _run_right_alone, prompt.answer, databases, limits)
    except CallRaised as error:
        raise _explain_row(error, prompt) from error
    except LimitPassed as error:
        text = f"{_place(prompt)}: the right query does not run ({error}): {prompt.answer}; {_ROW}"
        raise ValueError(text) from error


def _explain_row(error: CallRaised, prompt: Prompt) -> Exception:
    """What the worker process raised, with the place of the row where it is about the right query."""
    return ValueError(f"{_place(prompt)}: {error.text}; {_ROW}") if error.kind == "ValueError" else error


def _place(prompt: Prompt) -> str:
    return prompt.place or prompt.key


def _run_right_alone(right: str, databases: Databases, limits: QueryLimits) -> None:
    for connection in databases.connect():
        _need_right(connection, right, limits)


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


class RightResults:
    """Results of right queries on databases whose rows do not change; the oldest are dropped above a size.

    Args:
        largest: bytes of all results together, as far as they can be estimated.
    """

    def __init__(self, largest: int = 2**30):
        self.largest, self.size = largest, 0
        self._results: OrderedDict[tuple[Any, ...], tuple[Result, int]] = OrderedDict()

    def run(self, connection: sqlite3.Connection, query: str, limits: QueryLimits) -> Result:
        """Run a right query; each connection has a result of its own."""
        key = connection, query, limits
        if key in self._results:
            self._results.move_to_end(key)
            return self._results[key][0]
        result = run_query(connection, query, limits)
        self._results[key] = result, _estimate_bytes(result)
        self.size += self._results[key][1]
        while self.size > self.largest or len(self._results) > _MOST_RESULTS:
            self.size -= self._results.popitem(last=False)[1][1]
        return result


def _estimate_bytes(result: Result) -> int:
    """Bytes of a result in memory: of each row, of each value, and of the letters of texts."""
    return sum(64 + sum(64 + (len(v) if isinstance(v, str | bytes) else 0) for v in row) for row in result.rows)


_results = RightResults()


def _need_right(connection: sqlite3.Connection, query: str, limits: QueryLimits) -> Result:
    """Run the right query; raises ValueError if it does not run."""
    result = _results.run(connection, query, limits)
    if result.word != "ran":
        raise ValueError(f"the right query does not run ({result.word} {result.reason}): {query}")
    return result


def score_query(
    task: AnswerTask,
    episode: Episode,
    databases: Databases,
    limits: QueryLimits = SMALL,
    right_limits: QueryLimits = SMALL,
) -> dict[str, float]:
    """Score the query of an episode; `info` gets the outcome (right, wrong or the name of an error) and the reason."""
    query = task.read_answer(episode) or ""
    scores, word, reason = verify_limited(query, episode.prompt, databases, limits, right_limits)
    word = word if word != "ran" else ("right" if scores["exact"] else "wrong")
    episode.info.update(outcome=word, reason=reason)
    return scores
