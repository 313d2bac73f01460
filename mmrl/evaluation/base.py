"""Evaluators: metrics of held-out episodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from mmrl.core.types import Episode


class Evaluator(ABC):
    """Computes named metrics from the evaluation episodes of all ranks (light episodes: no turns)."""

    @abstractmethod
    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]: ...

    @property
    def compares(self) -> bool:
        """Whether `against` computes changes since the start of the run."""
        return type(self).against is not Evaluator.against or type(self).plot is not Evaluator.plot

    def against(self, start: Sequence[Episode], episodes: Sequence[Episode]) -> dict[str, float]:
        """Compute changes since the start of the run; `start` has the episodes of the same problems at that time."""
        return {}

    plots_alone = False  # whether one measurement has a plot; else it shows a change since the start

    def plot(self, axes: Any, start: Sequence[Episode], episodes: Sequence[Episode]) -> bool:
        """Plot the first and the latest episodes into matplotlib axes; returns False without a plot."""
        return False
