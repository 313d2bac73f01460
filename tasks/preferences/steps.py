"""Read rows of process supervision in TRL's format: {"prompt", "completions": [step], "labels": [true or false]}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmrl.files.strict_json import quote


def has_steps(record: Mapping[str, Any]) -> bool:
    """Whether a row has steps with labels, and not several answers with gold scores."""
    return record.get("completions") is not None and record.get("scores") is None


def read_steps(record: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Read steps and their labels, as the columns `steps` and `step_labels` of a row.

    Raises:
        ValueError: with the row, the column and what to do.
    """
    steps, labels = record["completions"], record.get("labels")
    if not isinstance(steps, list) or not steps or not all(isinstance(step, str) and step.strip() for step in steps):
        raise ValueError(f"{place}: column 'completions' must be a list of steps that are texts, got {quote(steps)}")
    if not isinstance(labels, list) or len(labels) != len(steps) or any(label not in (0, 1) for label in labels):
        raise ValueError(
            f"{place}: column 'labels' must say true or false of each of the {len(steps)} completions, got "
            f"{quote(labels)}; several answers have 'scores' instead"
        )
    return {"steps": list(steps), "step_labels": [bool(label) for label in labels]}
