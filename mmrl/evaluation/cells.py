"""How much of a place a policy gets to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.finished import failures, finished
from mmrl.types import Episode


@dataclass(frozen=True)
class Cells(Evaluator):
    """Distinct cells of a grid in which decisions were taken, `visited`, and how many episodes there were, `episodes`.

    The coverage of a state space by all lives together. Source: METRA, 2023, section 5.2, arXiv:2310.08887.

    Args:
        entries: those of the state vector that are coordinates of the grid.
        size: side of a cell, in the unit of the entries.
    """

    entries: tuple[int, ...] = (0, 1)
    size: float = 1.0

    def __post_init__(self) -> None:
        if self.size <= 0:
            raise ValueError(f"evaluator cells: size must be > 0, got {self.size}")

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = finished(episodes)
        states = [turn.completion.observation for episode in valid for turn in episode.turns]
        if states and "state" not in states[0]:
            raise KeyError(f"evaluator cells needs observations with a state vector; these have {sorted(states[0])}")
        places = torch.stack([each["state"] for each in states])[:, list(self.entries)] if states else torch.zeros(0, 1)
        cells = torch.unique((places / self.size).floor(), dim=0)
        return {"visited": float(len(cells)), "episodes": float(len(valid)), "errors": failures(episodes)}
