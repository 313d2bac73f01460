"""Which rows belong to which split."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mmrl.rng import derive_rng
from mmrl.strict_json import quote
from tasks.jsonl.data import Row
from tasks.jsonl.verify import verify


def share(rows: Sequence[Row], held_out_fraction: float, seed: int) -> dict[str, tuple[Row, ...]]:
    """Both splits of one file: a seeded share of the distinct problems is held out, rows that repeat one included."""
    problems = list(dict.fromkeys(map(_problem, rows)))
    held = max(1, round(held_out_fraction * len(problems)))
    if held >= len(problems):
        raise ValueError(
            f"task 'jsonl': {len(problems)} distinct problems are too few to hold out {held}; add rows, or set "
            "task.held_out_path to a file of its own"
        )
    order = derive_rng("jsonl", "split", seed).permutation(len(problems))
    chosen = {problems[position] for position in order[:held]}
    return {
        "train": tuple(row for row in rows if _problem(row) not in chosen),
        "held_out": tuple(row for row in rows if _problem(row) in chosen),
    }


def apart(train: Sequence[Row], held_out: Sequence[Row]) -> dict[str, tuple[Row, ...]]:
    """Both splits of two files. Refuses a problem in both: its held-out score would be a memory, not a skill."""
    trained = {_problem(row): row.place for row in train}
    for row in held_out:
        if _problem(row) in trained:
            raise ValueError(
                f"{row.place}: the same problem is trained on, {trained[_problem(row)]}; delete one of them"
            )
    return {"train": tuple(train), "held_out": tuple(held_out)}


def refuse_contradictions(rows: Sequence[Row]) -> None:
    """Refuse a problem that stands twice with different answers: no reply to it could always be right."""
    first: dict[tuple[str, Path | None], Row] = {}
    for row in rows:
        known = first.setdefault(_problem(row), row)
        if known is not row and not verify(known.answer, row.answer)["exact"]:
            raise ValueError(
                f"{row.place}: the answer is {quote(row.answer)}, but {known.place} answers the same question with "
                f"{quote(known.answer)}; delete one of the rows"
            )


def _problem(row: Row) -> tuple[str, Path | None]:
    """What makes two rows the same problem: the words of the question and the file of the image."""
    return " ".join(row.question.split()), row.image and row.image.resolve()
