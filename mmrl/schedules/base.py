"""Interface of schedules: a number for each iteration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any


class Schedule(ABC):
    """Base class: the value of a scalar of the configuration at an iteration.

    It stands in the configuration where the number would stand. A schedule is a function of the iteration; a
    controller is one that has a state too, which `observe` changes at the end of an iteration.
    """

    @abstractmethod
    def __call__(self, iteration: int) -> float:
        """Compute the value at an iteration, counted from 0. A scalar that is a whole number gets it rounded."""

    def observe(self, metrics: Mapping[str, float]) -> None:
        """Update the state from the metrics of a finished iteration, which are equal on all ranks."""

    def state_dict(self) -> dict[str, Any]:
        """State to save in checkpoints, as plain values; empty for functions of the iteration."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
