"""Vision-Zero: whether clues or votes are trained."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from mmrl.core.errors import check_at_least, check_fraction


@dataclass
class PhaseSwitch:
    """Train votes until they are right, then clues until votes fail, by running means of the votes' outcomes.

    To clues where the accuracy is at least `high_accuracy` and the share of abstentions at most `low_none`; to
    votes where the share of errors is at least `high_error` or that of abstentions at least `high_none`. A phase
    has at least `min_steps` iterations and at most `max_steps`. Source: Vision-Zero, 2025, iterative self-play policy
    optimisation, arXiv:2509.25541.
    """

    high_accuracy: float = 0.9
    low_none: float = 0.1
    high_error: float = 0.4
    high_none: float = 0.5
    min_steps: int = 5
    max_steps: int = 20
    rho: float = 0.95
    phase: str = "votes"
    steps: int = 0  # of the phase
    accuracy: float | None = None
    none: float | None = None

    def __post_init__(self) -> None:
        shares = {"high_accuracy": self.high_accuracy, "low_none": self.low_none, "high_error": self.high_error}
        check_fraction("rollout", **shares, high_none=self.high_none, rho=self.rho)
        check_at_least(1, "rollout", min_steps=self.min_steps)
        check_at_least(self.min_steps, "rollout", max_steps=self.max_steps)

    def update(self, accuracy: float, none: float) -> None:
        """Count an iteration with these shares of its votes, and change the phase where it is time."""
        self.accuracy = self._mean(self.accuracy, accuracy)
        self.none = self._mean(self.none, none)
        self.steps += 1
        if self.phase == "votes":
            is_over = self.accuracy >= self.high_accuracy and self.none <= self.low_none
        else:
            is_over = 1 - self.accuracy >= self.high_error or self.none >= self.high_none
        if self.steps >= self.max_steps or (is_over and self.steps >= self.min_steps):
            self.phase, self.steps = ("clues" if self.phase == "votes" else "votes"), 0

    def _mean(self, before: float | None, new: float) -> float:
        return new if before is None else self.rho * before + (1 - self.rho) * new

    def state_dict(self) -> dict[str, Any]:
        return {name: asdict(self)[name] for name in ("phase", "steps", "accuracy", "none")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
