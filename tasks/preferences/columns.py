"""Read the columns of a preference file beside its answers: margin, probability, labels, subset and id."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mmrl.files.strict_json import quote

NAMES = ("subset", "id")
"""Columns that name a row, for metrics of parts: those of RewardBench."""


def read_columns(record: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Read margin and probability as numbers, labels as numbers by name, subset and id as texts; those that are there.

    Raises:
        ValueError: with the row, the column and what to do.
    """
    columns: dict[str, Any] = {}
    for name in ("margin", "probability"):
        if record.get(name) is not None:
            columns[name] = _number(record[name], name, place)
    if "probability" in columns and not 0 <= columns["probability"] <= 1:
        raise ValueError(
            f"{place}: column 'probability' is {columns['probability']}, it must be the probability in [0, 1] that the "
            "chosen answer is better"
        )
    if record.get("labels") is not None:
        columns["labels"] = _labels(record["labels"], place)
    return columns | {name: str(record[name]) for name in NAMES if record.get(name) is not None}


def read_candidates(record: Mapping[str, Any], place: str) -> tuple[list[str], list[float]]:
    """Read answers and their gold scores: {"prompt", "completions": [text], "scores": [number]}."""
    answers, scores = record["completions"], record["scores"]
    if not isinstance(answers, list) or len(answers) < 2 or not all(isinstance(each, str) for each in answers):
        raise ValueError(f"{place}: column 'completions' must be a list of two or more texts, got {quote(answers)}")
    if not isinstance(scores, list) or len(scores) != len(answers):
        raise ValueError(f"{place}: column 'scores' must have one number for each of the {len(answers)} completions")
    return answers, [_number(score, "scores", place) for score in scores]


def _labels(value: Any, place: str) -> dict[str, float]:
    """Numbers by name; those of a list are named by their place, and a missing one is NaN."""
    if isinstance(value, list):
        value = {str(number): entry for number, entry in enumerate(value)}
    if not isinstance(value, Mapping):
        value = {"0": value}
    if not value:
        raise ValueError(f"{place}: column 'labels' is empty; give a number, a list or numbers by name")
    return {name: math.nan if entry is None else _number(entry, "labels", place) for name, entry in value.items()}


def _number(value: Any, name: str, place: str) -> float:
    number = float(value) if isinstance(value, bool | int | float) else math.nan
    if not math.isfinite(number):
        raise ValueError(f"{place}: column {name!r} has {quote(value)}, which is no finite number; rename or mend it")
    return number
