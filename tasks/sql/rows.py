"""Rows of Spider and BIRD: questions over SQLite files."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from mmrl.core.errors import check_positive
from mmrl.core.types import Episode, Prompt
from tasks.dataset.source import Record
from tasks.generated import ask_user
from tasks.rows import RowsTask, need_text
from tasks.sql.database import QueryLimits
from tasks.sql.verify import score_query, verify_limited

_COLUMNS, _LENGTH = 2000, 1_000_000  # of a table or a result, and of a value; tables of BIRD have up to 115 columns
_RIGHT = QueryLimits(operations=2_000_000_000, rows=1_000_000, size=1_000_000_000, functions=None, seconds=1800.0)
"""Limits of the queries of the data set, which are trusted: they tell a query without an end from a long one."""


@dataclass(frozen=True)
class SQLRows(RowsTask):
    """Questions of Spider (columns question, query, db_id) or BIRD (question, SQL, db_id, evidence).

    The databases are files <databases>/<db_id>/<db_id>.sqlite; they are opened for reading. All rows of a database are
    in one split.
    Source: Yu et al., "Spider", arXiv 1809.08887; Li et al., "Can LLM Already Serve as A Database Interface? A BIg
    Bench for Large-Scale Database Grounded Text-to-SQLs", arXiv 2305.03111.

    Args:
        databases: folder of the databases.
        max_operations: of SQLite's virtual machine in a query of the policy; a row that is read takes several.
        max_rows: of the result of a query of the policy.
        timeout_s: limit of a query of the policy, in seconds of processor time.
    """

    databases: str
    max_operations: int = 50_000_000
    max_rows: int = 100_000
    timeout_s: float = 30.0

    name = "sql_rows"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(
            f"task {self.name!r}:", max_operations=self.max_operations, max_rows=self.max_rows, timeout_s=self.timeout_s
        )

    @property
    def _limits(self) -> tuple[QueryLimits, QueryLimits]:
        """Limits of a query of the policy, and of the right query."""
        limits = QueryLimits(self.max_operations, self.max_rows, _COLUMNS, _LENGTH, seconds=self.timeout_s)
        return limits, replace(_RIGHT, rows=max(_RIGHT.rows, self.max_rows))

    def split_key(self, record: Record) -> str:
        return str(record.get("db_id"))

    def write_prompt(self, record: Record, place: str, key: str) -> Prompt:
        name = need_text(record, "db_id", place=place)
        folder = Path(self.databases).expanduser().resolve()
        file = (folder / name / f"{name}.sqlite").resolve()
        if not file.is_relative_to(folder) or not file.is_file():
            raise ValueError(
                f"{place}: there is no database {file}; set task.databases to the folder with {name}/{name}.sqlite"
            )
        evidence = record.get("evidence")
        lines = [*read_schema(str(file)), *([f"-- {evidence}"] if isinstance(evidence, str) and evidence else [])]
        lines.append(f"-- {need_text(record, 'question', place=place)}")
        query = need_text(record, "SQL", "query", place=place)
        return Prompt(key, ask_user("\n".join(lines)), answer=query, info={"database": str(file)}, place=place)

    def score(self, episode: Episode) -> dict[str, float]:
        return score_query(self, episode, DatabaseFile(episode.prompt.info["database"]), *self._limits)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return verify_limited(answer, prompt, DatabaseFile(prompt.info["database"]), *self._limits)[0]

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self[index].answer)


@dataclass(frozen=True)
class DatabaseFile:
    """One database in a file."""

    path: str

    def connect(self) -> list[sqlite3.Connection]:
        return [open_database(self.path, threading.get_ident())]


@lru_cache(maxsize=64)
def open_database(file: str, thread: int) -> sqlite3.Connection:
    """Open a database file for reading; each thread has a connection of its own."""
    return sqlite3.connect(f"{Path(file).as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)


@lru_cache(maxsize=256)
def read_schema(file: str) -> list[str]:
    """Read the statements that create the tables of a database."""
    rows = open_database(file, threading.get_ident()).execute(
        "SELECT sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    )
    return [f"{row[0]};" for row in rows]
