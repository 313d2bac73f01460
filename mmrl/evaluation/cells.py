"""How much of a place a policy gets to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.finished import failures, finished, score_of
from mmrl.types import Episode


@dataclass(frozen=True)
class Cells(Evaluator):
    """Distinct cells of a grid in which episodes ended, `visited`, and how many episodes there were, `episodes`.

    Args:
        scores: the coordinates, as scores that the simulator reports.
        size: side of a cell, in their unit.
    """

    scores: tuple[str, ...] = ("x_m", "y_m")
    size: float = 1.0

    def __post_init__(self) -> None:
        if self.size <= 0:
            raise ValueError(f"evaluator cells: size must be > 0, got {self.size}")

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = finished(episodes)
        cells = {tuple(floor(score_of(episode, name) / self.size) for name in self.scores) for episode in valid}
        return {"visited": float(len(cells)), "episodes": float(len(valid)), "errors": failures(episodes)}
