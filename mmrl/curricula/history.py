"""History of success rates: the rate of every problem at each of its visits, and what it says about the problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mmrl.core.types import Episode
from mmrl.curricula.base import success_rates


class PromptHistory:
    """Mean success rate of every problem at each visit, in order, alike on all processes.

    Args:
        score_name: "reward", or the name of a score, in [0, 1].
    """

    def __init__(self, score_name: str = "reward"):
        self.score_name = score_name
        self.rates: dict[int, list[float]] = {}  # by the problem's index

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        """Append the mean rate of each group; a group whose episodes all ended in an error is no visit."""
        for group in groups:
            if rates := success_rates(group, self.score_name):
                self.rates.setdefault(group[0].prompt.index, []).append(sum(rates) / len(rates))

    def state_dict(self) -> dict[str, Any]:
        return {"rates": {index: list(rates) for index, rates in self.rates.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rates = {int(index): list(rates) for index, rates in state.get("rates", {}).items()}


def variance(rates: Sequence[float]) -> float:
    """Population variance of the rates over the visits; 0 for a single visit."""
    return float(np.var(rates))


def slope(rates: Sequence[float]) -> float:
    """Least-squares slope of the rates over the visits 0, 1, ...; 0 for a single visit.

    slope = sum_e (e - mean(e)) rate_e / sum_e (e - mean(e))^2.
    """
    visits = np.arange(len(rates)) - (len(rates) - 1) / 2
    square = float((visits**2).sum())
    return float(visits @ np.asarray(rates)) / square if square else 0.0
