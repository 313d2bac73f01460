"""Split rows into training and held out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mmrl.rng import derive_rng
from mmrl.strict_json import quote
from tasks.jsonl.data import Row
from tasks.jsonl.verify import verify


def share(rows: Sequence[Row], held_out_fraction: float, seed: int) -> dict[str, tuple[Row, ...]]:
    """Split one file: a seeded fraction of the distinct problems is held out, with all their repetitions."""
    problems = list(dict.fromkeys(map(_problem, rows)))
    num_held_out = max(1, round(held_out_fraction * len(problems)))
    if num_held_out >= len(problems):
        raise ValueError(
            f"task 'jsonl': {len(problems)} distinct problems are too few to hold out {num_held_out}; add rows, or set "
            "task.held_out_path to a file of its own"
        )
    order = derive_rng("jsonl", "split", seed).permutation(len(problems))
    chosen = {problems[position] for position in order[:num_held_out]}
    return {
        "train": tuple(row for row in rows if _problem(row) not in chosen),
        "held_out": tuple(row for row in rows if _problem(row) in chosen),
    }


def apart(train: Sequence[Row], held_out: Sequence[Row]) -> dict[str, tuple[Row, ...]]:
    """Split given as two files; raises for a problem that is in both."""
    trained = {_problem(row): row.place for row in train}
    for row in held_out:
        if _problem(row) in trained:
            raise ValueError(
                f"{row.place}: the same problem is trained on, {trained[_problem(row)]}; delete one of them"
            )
    return {"train": tuple(train), "held_out": tuple(held_out)}


def refuse_contradictions(rows: Sequence[Row]) -> None:
    """Raise for a problem that occurs with different answers."""
    first: dict[tuple[str, Path | None], Row] = {}
    for row in rows:
        known = first.setdefault(_problem(row), row)
        if known is not row and not verify(known.answer, row.answer)["exact"]:
            raise ValueError(
                f"{row.place}: the answer is {quote(row.answer)}, but {known.place} answers the same question with "
                f"{quote(known.answer)}; delete one of the rows"
            )


def _problem(row: Row) -> tuple[str, Path | None]:
    """Identity of a problem: the question's words and the image file."""
    return " ".join(row.question.split()), row.image and row.image.resolve()
