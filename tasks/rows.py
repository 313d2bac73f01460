"""Base of tasks whose problems are the rows of a public data set's file."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Self

from mmrl.core.errors import check_interval
from mmrl.core.types import Prompt
from mmrl.files.strict_json import quote
from tasks.answers import AnswerTask
from tasks.checks import check_index, check_split
from tasks.dataset.source import Record, TableSource, find_source
from tasks.dataset.tables import open_table
from tasks.generated import choose_split


@dataclass(frozen=True, kw_only=True)
class RowsTask(AnswerTask):
    """Task whose problems are rows of a file, or of a data set on the hub.

    Args:
        path: file (JSON Lines, JSON, CSV, parquet, Arrow), folder or hub id, as of task=dataset.
        subset: configuration of a data set on the hub.
        rows_split: of a data set on the hub.
        split: "train" or "held_out".
        held_out_fraction: share of what decides the split; 1 holds out everything, to measure a policy.
        seed: of the split; part of the task, not of the run.
    """

    path: str
    subset: str | None = None
    rows_split: str | None = None
    split: str = "train"
    held_out_fraction: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_split(self.name, self.split)
        check_interval(f"task {self.name!r}:", "(0, 1]", held_out_fraction=self.held_out_fraction)

    @abstractmethod
    def split_key(self, record: Record) -> str:
        """Return the text that decides the split of a row: no text is in both splits."""

    @abstractmethod
    def write_prompt(self, record: Record, place: str, key: str) -> Prompt:
        """Write the prompt of a row; `place` is its file and line, for messages."""

    @cached_property
    def rows(self) -> list[tuple[str, Record]]:
        """File and line, and columns, of the rows of this split."""
        table = _read_rows(find_source(self.path, self.subset, self.rows_split, "task.path"))
        rows = [row for row in table if self.split_of(row[1]) == self.split]
        if not rows and self.held_out_fraction < 1:
            raise ValueError(
                f"task {self.name!r}: {self.path} has {len(table)} rows and none in the split {self.split!r}; change "
                "task.held_out_fraction or task.seed"
            )
        return rows

    def split_of(self, record: Record) -> str:
        """Return the split that a row belongs to."""
        return choose_split(self.name, self.seed, self.split_key(record), self.held_out_fraction)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        place, record = self.rows[index]
        return self.write_prompt(record, place, f"{self.name}/{self.split}/{index}")

    def on(self, split: str) -> Self:
        return replace(self, split=split)


def need_text(record: Record, *names: str, place: str) -> str:
    """Return the text of the first of these columns that a row has; refuse a row without any."""
    for name in names:
        if name in record:
            if isinstance(record[name], str) and record[name].strip():
                return record[name]
            raise ValueError(f"{place}: column {name!r} must be a text that is not blank, is {quote(record[name])}")
    have = ", ".join(map(quote, record))
    raise ValueError(f"{place}: no column {' or '.join(map(repr, names))}; the row has {have}; correct the file")


@lru_cache(maxsize=8)
def _read_rows(source: TableSource) -> list[tuple[str, dict[str, Any]]]:
    table = open_table(source)
    return [(table.place(i), table.record(i)) for i in range(len(table))]
