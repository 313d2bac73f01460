"""Filters of rows by reward, quantile, equality and rank, and preference pairs of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mmrl.commands.rounds.rows import Row, group_rows
from mmrl.commands.rounds.stages import FilterStage
from mmrl.core.errors import ConfigError
from mmrl.core.rng import derive_rng


def filter_rows(stage: FilterStage, rows: Sequence[Row], seed: int, place: str = "filter") -> list[Row]:
    """Return the rows that a filter stage keeps, in their order, or the preference pairs that it makes of them.

    Args:
        stage: its options.
        rows: completions with scores.
        seed: of the drawn halves of pairs and of the solved problems that stay.
        place: of the stage, for messages.

    Raises:
        ConfigError: a row lacks a score that the stage names.
    """
    remaining = [row for row in rows if row["ended"] != "error"]
    for name, least in stage.min.items():
        remaining = [row for row in remaining if read_score(row, name, f"{place}.min") >= least]
    for name, most in stage.max.items():
        remaining = [row for row in remaining if read_score(row, name, f"{place}.max") <= most]
    if stage.pairs is not None:
        return build_pairs(stage, remaining, seed, place)
    remaining = [row for row in remaining if _is_answer(row, stage.cut)]
    if stage.solved < 1:
        remaining = _thin_solved(rows, remaining, stage.solved, seed)
    if stage.quantile is not None and remaining:
        values = [read_score(row, stage.by, f"{place}.by") for row in remaining]
        threshold = float(np.quantile(values, stage.quantile))
        remaining = [row for row, value in zip(remaining, values) if value >= threshold]
    if stage.distinct:
        remaining = list({(row["key"], row["completion"]): row for row in reversed(remaining)}.values())[::-1]
    return remaining if stage.best is None else _select_best(remaining, stage.by, stage.best, f"{place}.by")


def read_score(row: Row, name: str, place: str) -> float:
    """Return a score of a row by its name, or its reward; raises ConfigError where the row has none."""
    if name == "reward":
        return float(row["reward"])
    if name not in row["scores"]:
        raise ConfigError(f"{place}: {row['key']!r} has no score {name!r}, it has reward and {sorted(row['scores'])}")
    return float(row["scores"][name])


def _is_answer(row: Row, cut: bool) -> bool:
    """Whether a completion can be learned from: it has a text, and it ended by itself unless `cut`."""
    return bool(row["completion"]) and (cut or row["ended"] == "done")


def _thin_solved(rows: Sequence[Row], remaining: Sequence[Row], share: float, seed: int) -> list[Row]:
    """Keep a drawn share of the problems of which no row was dropped, and all rows of the others."""
    counts = {key: len(group) for key, group in group_rows(rows).items()}
    solved = {key for key, group in group_rows(remaining).items() if len(group) == counts[key]}
    left_out = {key for key in solved if derive_rng("solved", seed, key).random() >= share}
    return [row for row in remaining if row["key"] not in left_out]


def _select_best(rows: Sequence[Row], by: str, count: int, place: str) -> list[Row]:
    """Return the rows of highest score of each problem; of equals the first, in the order of all rows."""
    selected: set[int] = set()
    numbers: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        numbers.setdefault(row["key"], []).append(number)
    for members in numbers.values():
        selected.update(sorted(members, key=lambda n: -read_score(rows[n], by, place))[:count])
    return [row for number, row in enumerate(rows) if number in selected]


def build_pairs(stage: FilterStage, rows: Iterable[Row], seed: int, place: str) -> list[Row]:
    """Return a preference pair of each problem whose rows differ: the best row, and a lower one.

    best_worst takes the lowest row, best_lower draws one of all lower ones. Of equals the first counts. A completion
    that was cut off is the better one only with `cut`.
    """
    pairs: list[Row] = []
    for key, group in group_rows(rows).items():
        values = [read_score(row, stage.by, f"{place}.by") for row in group]
        whole = [n for n, row in enumerate(group) if _is_answer(row, stage.cut)]
        if not whole:
            continue
        best = max(whole, key=lambda n: (values[n], -n))
        lower = [n for n, value in enumerate(values) if value < values[best] and values[best] - value >= stage.margin]
        lower = [n for n in lower if group[n]["completion"] != group[best]["completion"]]
        if not lower:
            continue
        if stage.pairs == "best_worst":
            other = min(lower, key=lambda n: (values[n], n))
        else:
            other = lower[int(derive_rng("pair", seed, key).integers(len(lower)))]
        pairs.append(_build_pair(group[best], group[other], values[best], values[other]))
    return pairs


def _build_pair(chosen: Row, rejected: Row, chosen_score: float, rejected_score: float) -> dict[str, Any]:
    return {
        **{name: chosen[name] for name in ("key", "index", "prompt")},
        "chosen": chosen["completion"],
        "rejected": rejected["completion"],
        "chosen_score": chosen_score,
        "rejected_score": rejected_score,
    }
