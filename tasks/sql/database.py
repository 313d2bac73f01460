"""Run untrusted queries on SQLite: reading alone, within limits of work, rows and sizes."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

OPERATIONS = 200_000  # virtual-machine operations of SQLite per query
ROWS = 1000
_TICK = 1000  # operations between two checks
_LENGTH = 100_000  # bytes of a query or a value
FUNCTIONS = frozenset(
    (
        *(
            "abs",
            "avg",
            "coalesce",
            "count",
            "date",
            "group_concat",
            "ifnull",
            "iif",
            "instr",
            "length",
            "like",
            "lower",
        ),
        *("ltrim", "max", "min", "nullif", "replace", "round", "rtrim", "strftime", "substr", "substring", "sum"),
        *("total", "trim", "typeof", "upper", "row_number", "rank", "dense_rank", "julianday", "cast", "glob", "sign"),
    )
)
"""SQL functions that a query may call; others, such as randomblob or load_extension, are refused."""

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: _LENGTH,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 10_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 50_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
}
_READS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE)


@dataclass(frozen=True)
class Result:
    """Result of a query: its rows, and the columns that it reads, as (table, column).

    `word` is "ran", or the name of an error: "syntax_error" (SQLite refuses the query), "forbidden" (it does more than
    read, or calls another function), "timed_out", "too_many_rows", "too_long" (a value or the query), or "not_text".
    """

    word: str
    rows: tuple[tuple[object, ...], ...] = ()
    columns: frozenset[tuple[str, str]] = frozenset()
    reason: str = ""


class Guard:
    """Authorizer of a connection: permits reading, and notes which columns are read and what is refused."""

    def __init__(self) -> None:
        self.columns: set[tuple[str, str]] = set()
        self.refused = ""

    def __call__(self, action: int, first: str | None, second: str | None, *_: object) -> int:
        if action in _READS:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ and not (first or "").lower().startswith(("sqlite_", "pragma_")):
            if first and second:
                self.columns.add((first.lower(), second.lower()))
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in FUNCTIONS:
            return sqlite3.SQLITE_OK
        self.refused = second or first or str(action)
        return sqlite3.SQLITE_DENY


def run_query(connection: sqlite3.Connection, query: str) -> Result:
    """Run one query of a policy. The connection is used for nothing else meanwhile."""
    guard, work = Guard(), 0

    def count() -> bool:
        nonlocal work
        work += _TICK
        return work > OPERATIONS

    for limit, value in _LIMITS.items():
        connection.setlimit(limit, value)
    connection.set_authorizer(guard)
    connection.set_progress_handler(count, _TICK)
    try:
        rows = connection.execute(query).fetchmany(ROWS + 1)
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        said = str(error)
        word = "syntax_error"
        if guard.refused:
            word, said = "forbidden", guard.refused
        elif said == "interrupted":
            word = "timed_out"
        elif "too big" in said or "too long" in said or "too large" in said:
            word = "too_long"
        elif "decode" in said.lower() or isinstance(error, UnicodeError):
            word = "not_text"
        return Result(word, columns=frozenset(guard.columns), reason=said[:200])
    finally:
        connection.set_progress_handler(None, 0)
        connection.set_authorizer(None)
    if len(rows) > ROWS:
        return Result("too_many_rows", columns=frozenset(guard.columns))
    return Result("ran", tuple(rows), frozenset(guard.columns))


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
