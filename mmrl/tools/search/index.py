"""BM25 index of passages in memory, by the FTS5 extension of SQLite."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.tools.search.documents import Passage

_WORD = re.compile(r"[^\W_]+")
MODULE = "fts5"
_STEPS = 1000  # instructions of SQLite between two looks at the clock


@dataclass(frozen=True)
class Hit:
    """Passage that a search returns, and its BM25 score."""

    passage: Passage
    score: float


def find_words(text: str) -> list[str]:
    """Return the distinct words of a text, runs of letters and digits, in lower case and in order."""
    return list(dict.fromkeys(_WORD.findall(text.lower())))


class BM25Index:
    """Okapi BM25 over passages: the score of passage d for the words of query q, each counted once.

        score(q, d) = sum over w in q of idf(w) f(w, d) (k1 + 1) / (f(w, d) + k1 (1 - b + b |d| / mean |d|))
        idf(w) = max(log((N - n(w) + 0.5) / (n(w) + 0.5)), 1e-6)

    f(w, d) is the number of times that w is in d, |d| the number of words of d, N the number of passages, and n(w) the
    number of those that have w. FTS5 has k1 = 1.2 and b = 0.75, and the floor of idf for words that half of the
    passages have. Words are runs of letters and digits, without case and accents. Equal scores keep the order of the
    passages.

    One connection serves all threads, one search at a time.

    Source: Robertson et al., "Okapi at TREC-3", 1994; https://www.sqlite.org/fts5.html, section 5.1.1.
    """

    def __init__(self, passages: Sequence[Passage]):
        self._size = len(passages)
        self._lock = threading.Lock()
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        try:
            columns = "text, source unindexed, tokenize='unicode61 remove_diacritics 2'"
            self._database.execute(f"create virtual table passages using {MODULE}({columns})")
        except sqlite3.OperationalError as error:
            raise RuntimeError(
                f"this Python's SQLite {sqlite3.sqlite_version} has no full-text search ({error}); use a Python whose "
                "SQLite is compiled with FTS5, as those of python.org, conda and Debian are"
            ) from error
        rows = ((number, passage.text, passage.source) for number, passage in enumerate(passages))
        self._database.executemany("insert into passages(rowid, text, source) values (?, ?, ?)", rows)
        self._database.execute("insert into passages(passages) values ('optimize')")
        self._database.commit()

    def __len__(self) -> int:
        return self._size

    def read(self, numbers: Sequence[int]) -> list[Passage]:
        """Return passages by their numbers, from 0."""
        command = "select source, text from passages where rowid = ?"
        with self._lock:
            return [Passage(*self._database.execute(command, (number,)).fetchone()) for number in numbers]

    def search(self, words: Sequence[str], count: int, timeout_s: float) -> list[Hit]:
        """Return the `count` passages with the highest scores among those that have a word.

        Words are data and no syntax of FTS5: each is quoted.

        Raises:
            TimeoutError: the search took longer than `timeout_s` seconds.
        """
        match = " OR ".join('"' + word.replace('"', '""') + '"' for word in words)
        with self._lock:
            deadline = time.monotonic() + timeout_s
            self._database.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
            try:
                rows = self._database.execute(
                    "select source, text, -bm25(passages) as score from passages where passages match ? "
                    "order by score desc, rowid limit ?",
                    (match, count),
                ).fetchall()
            except sqlite3.OperationalError as error:
                if "interrupted" not in str(error):
                    raise
                raise TimeoutError(f"the search took longer than {timeout_s:g} seconds") from error
            finally:
                self._database.set_progress_handler(None, 0)
        return [Hit(Passage(source, text), score) for source, text, score in rows]
