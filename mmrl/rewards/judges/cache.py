"""Replies of judges on disk."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mmrl.core.errors import ConfigError
from mmrl.rewards.judges.questions import Reply


class ReplyCache:
    """Table of replies in an SQLite file, which several processes may share.

    Args:
        path: of the file; it is created with its folder.
    """

    def __init__(self, path: str):
        self.path = Path(path)

    def get(self, request: Mapping[str, Any]) -> Reply | None:
        """The reply to a request, or None."""
        with self._open() as connection:
            row = connection.execute("SELECT reply FROM replies WHERE key = ?", (_key(request),)).fetchone()
        try:
            return None if row is None else Reply(**json.loads(row[0]))
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"reward.judge.cache={self.path}: a reply in it cannot be read ({error}); name another file, or remove "
                "this one"
            ) from error

    def put(self, request: Mapping[str, Any], reply: Reply) -> None:
        """Store the reply to a request."""
        with self._open() as connection, connection:  # the inner one commits
            row = (_key(request), json.dumps(asdict(reply)))
            connection.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", row)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=60)) as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT)")
                yield connection
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(
                f"reward.judge.cache={self.path}: {error}; name another file, or remove this one"
            ) from error


def _key(request: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
