"""Run untrusted queries on SQLite: reading alone, within limits of work, rows and sizes."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mmrl.rewards.limits import limit_cpu

_GRACE = 0.5  # seconds after which a query is ended that does not see its own limit, inside one call of a function
_TICK = 1000  # operations between two checks
FUNCTIONS = frozenset(
    (
        *("abs", "avg", "cast", "ceil", "ceiling", "coalesce", "concat", "concat_ws", "count", "exp", "floor", "glob"),
        *("group_concat", "ifnull", "iif", "instr", "length", "like", "ln", "log", "log10", "log2", "lower", "ltrim"),
        *("max", "min", "mod", "nullif", "pow", "power", "replace", "round", "rtrim", "sign", "sqrt", "string_agg"),
        *("substr", "substring", "sum", "total", "trim", "trunc", "typeof", "unicode", "upper"),
        *("current_date", "current_time", "current_timestamp", "date", "datetime", "julianday", "strftime", "time"),
        *("timediff", "unixepoch"),
        *("cume_dist", "dense_rank", "first_value", "lag", "last_value", "lead", "nth_value", "ntile", "percent_rank"),
        *("rank", "row_number"),
    )
)
"""SQL functions that a query may call; others, such as randomblob or load_extension, are refused."""


@dataclass(frozen=True)
class QueryLimits:
    """What a query may use. The numbers are those of the small databases of `task=sql`.

    Args:
        operations: of SQLite's virtual machine.
        rows: of the result.
        columns: of a table or of the result.
        length: bytes of a value, of a row of a table, or of the query.
        size: of the result: characters of texts, bytes, and 8 for each number.
        seconds: of processor time of the query.
        functions: that it may call; None for all of SQLite.
    """

    operations: int = 200_000
    rows: int = 1000
    columns: int = 100
    length: int = 100_000
    size: int = 100_000_000
    seconds: float = 0.5
    functions: frozenset[str] | None = FUNCTIONS

    def of_connection(self) -> dict[int, int]:
        """The limits that SQLite checks itself, by its number of each; none where all functions are permitted."""
        if self.functions is None:
            return {}
        return {
            sqlite3.SQLITE_LIMIT_LENGTH: self.length,
            sqlite3.SQLITE_LIMIT_SQL_LENGTH: 10_000,
            sqlite3.SQLITE_LIMIT_COLUMN: self.columns,
            sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
            sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
            sqlite3.SQLITE_LIMIT_VDBE_OP: 50_000,
            sqlite3.SQLITE_LIMIT_ATTACHED: 0,
            sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
        }


SMALL = QueryLimits()
_READS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE)


@dataclass(frozen=True)
class Result:
    """Result of a query: its rows, and the columns that it reads, as (table, column).

    `word` is "ran", or the name of an error: "syntax_error" (SQLite refuses the query), "forbidden" (it does more than
    read, or calls another function), "timed_out" (operations or seconds), "too_many_rows", "too_long" (a value, the
    query or the whole result), or "not_text".
    """

    word: str
    rows: tuple[tuple[object, ...], ...] = ()
    columns: frozenset[tuple[str, str]] = frozenset()
    reason: str = ""


class Databases(Protocol):
    """Databases on which a query is compared; a value that can be sent to another process."""

    def connect(self) -> Iterable[sqlite3.Connection]:
        """Open them for reading, one after the other; each thread has connections of its own."""
        ...


class QueryAuthorizer:
    """Authorizer of a connection: permits reading, and notes which columns are read and what is refused."""

    def __init__(self, functions: frozenset[str] | None) -> None:
        self.functions = functions
        self.columns: set[tuple[str, str]] = set()
        self.refused = ""

    def __call__(self, action: int, first: str | None, second: str | None, *_: object) -> int:
        if action in _READS:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ and not (first or "").lower().startswith(("sqlite_", "pragma_")):
            if first and second:
                self.columns.add((first.lower(), second.lower()))
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and (self.functions is None or (second or "").lower() in self.functions):
            return sqlite3.SQLITE_OK
        self.refused = second or first or str(action)
        return sqlite3.SQLITE_DENY


def run_query(connection: sqlite3.Connection, query: str, limits: QueryLimits = SMALL) -> Result:
    """Run one query for reading within limits. The connection is used for nothing else meanwhile.

    Time is looked at between operations of SQLite's machine. A worker process of `mmrl.rewards.limits` is ended half a
    second later, so that one call of a function has a limit too.
    """
    guard, work, deadline = QueryAuthorizer(limits.functions), 0, time.thread_time() + limits.seconds

    def count() -> bool:
        nonlocal work
        work += _TICK
        return work > limits.operations or time.thread_time() > deadline

    before = {limit: connection.setlimit(limit, value) for limit, value in limits.of_connection().items()}
    connection.set_authorizer(guard)
    connection.set_progress_handler(count, _TICK)
    try:
        with limit_cpu(limits.seconds + _GRACE):
            rows, word = _fetch(connection.execute(query), limits)
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        return Result(_name_error(error, guard), columns=frozenset(guard.columns), reason=_explain(error, guard))
    finally:
        connection.set_progress_handler(None, 0)
        connection.set_authorizer(None)
        for limit, value in before.items():
            connection.setlimit(limit, value)
    return Result(word, tuple(rows), frozenset(guard.columns))


def _fetch(cursor: sqlite3.Cursor, limits: QueryLimits) -> tuple[list[tuple[object, ...]], str]:
    """Read the rows of a result, and whether it "ran" or is "too_many_rows" or "too_long", and then none."""
    rows: list[tuple[object, ...]] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
        if len(rows) > limits.rows or size > limits.size:
            return [], "too_many_rows" if len(rows) > limits.rows else "too_long"
    return rows, "ran"


def _name_error(error: Exception, guard: QueryAuthorizer) -> str:
    message = str(error)
    if guard.refused:
        return "forbidden"
    if message == "interrupted":
        return "timed_out"
    if "too big" in message or "too long" in message or "too large" in message:
        return "too_long"
    return "not_text" if "decode" in message.lower() or isinstance(error, UnicodeError) else "syntax_error"


def _explain(error: Exception, guard: QueryAuthorizer) -> str:
    return (guard.refused or str(error))[:200]


def match_rows(rows: Sequence[tuple[object, ...]], right: Sequence[tuple[object, ...]], ordered: bool) -> bool:
    """Whether two results are equal: as sequences if `ordered`, else as multisets of rows.

    1 equals 1.0; texts and numbers differ; real numbers are compared to six decimal places.
    """
    if len(rows) != len(right):
        return False
    ours, theirs = [_plain(row) for row in rows], [_plain(row) for row in right]
    return ours == theirs if ordered else sorted(ours) == sorted(theirs)


def is_ordered(query: str) -> bool:
    """Whether the outermost SELECT of a query has ORDER BY: one outside of brackets and quotes."""
    bare = re.sub(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`", " ", query)
    while "(" in bare and (smaller := re.sub(r"\([^()]*\)", " ", bare)) != bare:
        bare = smaller
    return re.search(r"\border\s+by\b", bare, re.IGNORECASE) is not None


def _plain(row: tuple[object, ...]) -> tuple[tuple[str, object], ...]:
    """A row whose values can be compared and sorted, whatever their types are."""
    out: list[tuple[str, object]] = []
    for value in row:
        if value is None:
            out.append(("none", 0))
        elif isinstance(value, int | float):
            out.append(("number", round(value, 6)))
        elif isinstance(value, bytes):
            out.append(("bytes", value))
        else:
            out.append(("text", value))
    return tuple(out)
