"""Scan a table once, and split its rows into training and held out."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from mmrl.core.rng import derive_rng
from mmrl.files.strict_json import quote
from tasks.dataset.columns import RowLayout, list_beside
from tasks.dataset.problems import Problem, find_value, read_problem
from tasks.dataset.source import RowTable, TableSource
from tasks.dataset.tables import open_table
from tasks.dataset.verify import verify

log = logging.getLogger(__name__)

_PENDING = 64  # images that wait to be decoded, which bounds the memory


@dataclass(frozen=True)
class Rules:
    """What is checked, and what is held out.

    Args:
        max_pixels: of an image.
        check_images: number of images that are decoded before the first step.
        skip_bad: leave bad rows out in place of an error.
        held_out_fraction: of the distinct problems.
        held_out_column: column that tells the split; None for a fraction.
        held_out_values: its values in held-out rows.
        seed: of the fraction.
    """

    max_pixels: int
    check_images: int
    skip_bad: bool
    held_out_fraction: float
    held_out_column: str | None
    held_out_values: tuple[str, ...]
    seed: int


@dataclass(frozen=True)
class Rows:
    """Rows of one table that are problems of a split."""

    source: TableSource
    layout: RowLayout
    indices: np.ndarray  # [problems] int64, rows of the table

    def __len__(self) -> int:
        return len(self.indices)

    @cached_property
    def _table(self) -> RowTable:
        return open_table(self.source)

    def problem(self, index: int) -> Problem:
        row = int(self.indices[index])
        return read_problem(self._table.record(row), self._table.place(row), self.layout)

    def problems(self) -> Iterator[Problem]:
        """All problems in order; the table is read once from its beginning to its end."""
        indices = iter(self.indices.tolist())
        row = next(indices, None)
        for index, record in enumerate(self._table.records()):
            if row is None:
                return
            if index == row:
                yield read_problem(record, self._table.place(index), self.layout)
                row = next(indices, None)

    def take(self, chosen: np.ndarray) -> Rows:
        return Rows(self.source, self.layout, self.indices[chosen])


@dataclass
class Scan:
    """Good rows of a table: their numbers, their identities, and what the column that tells the split has in them."""

    source: TableSource
    layout: RowLayout
    indices: list[int] = field(default_factory=list)
    identities: list[bytes] = field(default_factory=list)  # white space aside
    exact: list[bytes] = field(default_factory=list)  # identities with white space
    marks: list[str] = field(default_factory=list)  # none without such a column
    reasons: list[str] = field(default_factory=list)  # of the rows that were left out

    def rows(self, chosen: np.ndarray) -> Rows:
        """The rows where `chosen`, bool [rows], is True."""
        return Rows(self.source, self.layout, np.array(self.indices, np.int64)[chosen])


def scan(source: TableSource, layout: RowLayout, rules: Rules) -> Scan:
    """Read and check every row once, and decode the first images.

    Raises ValueError for the first bad row: malformed, without an answer, with a broken image, or a problem that occurs
    with another answer; with `skip_bad` such rows are left out.
    """
    table, result = open_table(source), Scan(source, layout)
    first: dict[bytes, int] = {}
    images = _ImageChecks(rules)
    records = table.records() if not rules.skip_bad else map(lambda index: None, range(len(table)))
    for index, streamed in enumerate(records):
        try:
            record = table.record(index) if streamed is None else streamed
            problem = read_problem(record, table.place(index), layout)
            identity, exact = problem.identity(), problem.identity(exact=True)
            first_index = first.setdefault(exact, index)
            if first_index != index:
                _refuse_contradiction(
                    read_problem(table.record(first_index), table.place(first_index), layout), problem
                )
            images.check(problem)
            marks = [] if rules.held_out_column is None else [_read_mark(record, problem.place, rules.held_out_column)]
        except (ValueError, FileNotFoundError) as error:
            if not rules.skip_bad:
                raise
            result.reasons.append(" ".join(str(error).split()))
            continue
        if not result.indices and (beside := list_beside(record, layout)):
            log.warning(
                "%s: columns %s are not in the prompt, only reward functions read them; task.template shows a column "
                "as {%s}, task.ignored=[%s] silences this",
                *(source.path, ", ".join(beside), beside[0], ", ".join(beside)),
            )
        result.indices.append(index)
        result.identities.append(identity)
        result.exact.append(exact)
        result.marks += marks
    images.finish()
    if not result.indices:
        raise ValueError(f"{source.path} has no row to use; correct the first one: {result.reasons[0]}")
    return result


class _ImageChecks:
    """Decode the first images of a table, several at a time: Pillow decodes without the interpreter's lock."""

    def __init__(self, rules: Rules):
        self.rules, self.left = rules, rules.check_images
        self.pool = ThreadPoolExecutor(min(8, os.cpu_count() or 1))
        self.pending: deque[Future[None]] = deque()

    def check(self, problem: Problem) -> None:
        """Start to decode the images of a problem; with `skip_bad` wait for them, because their row is left out."""
        for media in problem.media[: self.left]:
            self.left -= 1
            self.pending.append(self.pool.submit(media.check, self.rules.max_pixels))
        while len(self.pending) > (0 if self.rules.skip_bad else _PENDING):
            self.pending.popleft().result()

    def finish(self) -> None:
        while self.pending:
            self.pending.popleft().result()
        self.pool.shutdown()


def _refuse_contradiction(known: Problem, problem: Problem) -> None:
    """Raise for a problem that occurs with different answers."""
    if known.answer == problem.answer:
        return
    if known.answer is None or problem.answer is None or not verify(known.answer, problem.answer)["exact"]:
        raise ValueError(
            f"{problem.place}: the answer is {quote(problem.answer)}, but {known.place} answers the same question with "
            f"{quote(known.answer)}; delete one of the rows (task.skip_bad=true leaves out the later one)"
        )


def _agree(train: Scan, i: int, other: Scan, j: int) -> bool:
    """Whether two rows have the same answer."""
    rows = ((scanned, scanned.indices[position]) for scanned, position in ((train, i), (other, j)))
    problems = [read_problem(open_table(s.source).record(n), open_table(s.source).place(n), s.layout) for s, n in rows]
    try:
        _refuse_contradiction(*problems)
    except ValueError:
        return False
    return True


def _read_mark(record: dict[str, Any], place: str, column: str) -> str:
    try:
        return str(find_value(record, column))
    except KeyError:
        raise ValueError(
            f"{place}: column {column!r} is missing, the row has {quote(sorted(record))}; set task.held_out_column to "
            "the column that tells the split"
        ) from None


def split_fraction(found: Scan, rules: Rules) -> dict[str, Rows]:
    """Hold out a seeded fraction of the distinct problems, with all their repetitions."""
    problems = list(dict.fromkeys(found.identities))
    count = max(1, round(rules.held_out_fraction * len(problems)))
    if count >= len(problems):
        raise ValueError(
            f"task 'dataset': {len(problems)} distinct problems are too few to hold out {count}; add rows, or set "
            "task.held_out_path to a file of its own"
        )
    order = derive_rng("dataset", "split", rules.seed).permutation(len(problems))
    identities = {problems[position] for position in order[:count]}
    held_out = np.array([identity in identities for identity in found.identities])
    return {"train": found.rows(~held_out), "held_out": found.rows(held_out)}


def split_column(found: Scan, rules: Rules) -> dict[str, Rows]:
    """Hold out the rows whose column has one of the values."""
    marked = np.array([mark in rules.held_out_values for mark in found.marks])
    if marked.all() or not marked.any():
        raise ValueError(
            f"task 'dataset': column {rules.held_out_column!r} has one of {list(rules.held_out_values)} in "
            f"{'all' if marked.all() else 'no'} rows, so a split would be empty; set task.held_out_values"
        )
    values = sorted(set(found.marks))
    if unknown := [value for value in rules.held_out_values if value not in values]:
        raise ValueError(
            f"task 'dataset': column {rules.held_out_column!r} has {unknown} in no row, it has {quote(values)}; "
            "correct task.held_out_values, as rows of a misspelt split would be trained on"
        )
    train, held_out = ([i for i, m in enumerate(marked) if m == side] for side in (False, True))
    mask = _separate(found, train, found, held_out, rules)
    return {"train": found.rows(mask), "held_out": found.rows(marked)}


def split_tables(train: Scan, held_out: Scan, rules: Rules) -> dict[str, Rows]:
    """Hold out a table of its own."""
    mask = _separate(train, list(range(len(train.indices))), held_out, list(range(len(held_out.indices))), rules)
    return {"train": train.rows(mask), "held_out": held_out.rows(np.ones(len(held_out.indices), bool))}


def _separate(train: Scan, trained: list[int], other: Scan, held_out: list[int], rules: Rules) -> np.ndarray:
    """Mask of training rows that are not held out; raises for a problem in both splits unless `skip_bad`."""
    tested = {other.identities[i]: i for i in reversed(held_out)}
    mask = np.zeros(len(train.indices), bool)
    for i in trained:
        match = tested.get(train.identities[i])
        if match is not None and train.exact[i] != other.exact[match] and not _agree(train, i, other, match):
            match = None  # they differ in white space and in their answers: two problems
        mask[i] = match is None
        if match is not None:
            place = open_table(train.source).place(train.indices[i])
            message = (
                f"{open_table(other.source).place(other.indices[match])}: the same problem is trained on, {place}; "
                "delete one of them (task.skip_bad=true trains without it)"
            )
            if not rules.skip_bad:
                raise ValueError(message)
            train.reasons.append(message)
    if not mask.any():
        raise ValueError("task 'dataset': every training problem is held out too; set another file or column")
    return mask
