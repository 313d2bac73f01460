"""Completions of a file with scores that are labels for the heads of a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from mmrl.core.types import Context, Episode, Turn
from mmrl.rollouts.base import text_observation
from mmrl.rollouts.offline.answers import Answers
from mmrl.rollouts.offline.demonstrations import demonstration


class LabelledRows(Answers):
    """Completions of the task's problems from a JSON Lines file, each with scores of the row as its `labels`.

    Lines are those of `mmrl rounds`; the classifier reads the prompt that the task of this run has for the problem.

    Args:
        path: of the file.
        labels: names of the scores that are labels, in the order of the heads.
    """

    def __init__(self, path: str, labels: list[str]):
        super().__init__(path)
        if not labels or len(set(labels)) < len(labels):
            raise ValueError(f"rollout.labels must be different names of scores, got {labels}")
        self.labels = labels

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"labels"})

    def _check(self, row: Any, place: str) -> None:
        super()._check(row, place)
        scores = row.get("scores")
        known = dict(scores) if isinstance(scores, Mapping) else {}
        if missing := [name for name in self.labels if name not in known]:
            raise ValueError(
                f"{place}: no score {missing} to learn as a label, it has {sorted(known)}; name others in "
                "rollout.labels, or score the rows with the task that gives them"
            )

    def _build(self, row: Mapping[str, Any], slot: int, ctx: Context) -> list[Episode]:
        prompt = self._find_prompt(row, ctx)
        raw = {**text_observation(prompt), "answer": row["completion"]}
        turn = Turn(demonstration(raw, row["completion"], ctx))
        labels = torch.tensor([float(row["scores"][name]) for name in self.labels])
        return [Episode(prompt, slot, 0, [turn.with_columns(labels=labels)], source="demo")]
