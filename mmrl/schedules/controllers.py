"""Controllers: schedules with a state, which follow a metric of the run."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from mmrl.schedules.base import Schedule

LEARNED = "train/"
"""Beginning of the metrics of the learn step: an iteration without rows has none of them."""


class Controller(Schedule):
    """Base class: a value that an iteration's metric raises or lowers.

    Args:
        start: the value before the first iteration has ended.
        metric: name of the metric, as the run logs it.
    """

    def __init__(self, start: float, metric: str):
        self.value, self.metric = start, metric

    def __call__(self, iteration: int) -> float:
        return self.value

    @abstractmethod
    def update(self, measured: float) -> float:
        """Compute the next value from the metric of the iteration that has ended."""

    def observe(self, metrics: Mapping[str, float]) -> None:
        if self.metric in metrics:
            if math.isfinite(measured := metrics[self.metric]):
                self.value = self.update(measured)
        elif not self.metric.startswith(LEARNED) or any(name.startswith(LEARNED) for name in _losses(metrics)):
            raise ValueError(
                f"{type(self).__name__}.metric={self.metric!r} is no metric of this run; it has {sorted(metrics)}"
            )

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.value = state.get("value", self.value)


def _losses(metrics: Mapping[str, float]) -> list[str]:
    """Names of metrics apart from the learning rate, which an iteration without rows has too."""
    return [name for name in metrics if name != "train/learning_rate"]


class AdaptiveKL(Controller):
    """Adaptive KL coefficient: keeps the KL to the reference near a target.

    With e = clip((KL - target) / target, -0.2, 0.2), the coefficient is multiplied by 1 + gain * e after each
    iteration. Source: Fine-Tuning Language Models from Human Preferences (Ziegler et al.), 2019, section 2.2,
    arXiv:1909.08593.

    Args:
        start: first coefficient, above 0.
        target: KL in the units of the metric, nats per choice for train/kl/mean.
        gain: K_beta of the paper.
        metric: the KL that is measured: that of the term `kl`.
    """

    def __init__(self, start: float, target: float, gain: float = 0.1, metric: str = "train/kl/mean"):
        super().__init__(start, metric)
        for name, number in (("start", start), ("target", target), ("gain", gain)):
            if not number > 0:
                raise ValueError(f"{name} must be > 0, got {number}")
        self.target, self.gain = target, gain

    def update(self, measured: float) -> float:
        error = min(max((measured - self.target) / self.target, -0.2), 0.2)
        return self.value * (1 + self.gain * error)


class EntropyBand(Controller):
    """Raise a coefficient while the entropy is below a band, lower it while it is above.

    For the coefficient of the term `Entropy`, an entropy bonus. Below `low` the coefficient grows by `step`, above
    `high` it falls by `step`, within [0, max_value]. Source: Skywork Open Reasoner 1, 2025, adaptive entropy control,
    with one target in place of a band, arXiv:2505.22312.

    Args:
        start: first coefficient.
        low: smallest entropy of the band, nats per choice.
        high: largest entropy of the band.
        step: change in one iteration.
        max_value: largest coefficient.
        metric: the entropy that is measured: that of the term `entropy`.
    """

    def __init__(
        self,
        start: float,
        low: float,
        high: float,
        step: float = 0.001,
        max_value: float = 1.0,
        metric: str = "train/entropy/mean",
    ):
        super().__init__(start, metric)
        if not 0 <= low <= high:
            raise ValueError(f"needs 0 <= low <= high, got {low} and {high}")
        if not (step > 0 and 0 <= start <= max_value):
            raise ValueError(f"needs step > 0 and 0 <= start <= max_value, got {step}, {start} and {max_value}")
        self.low, self.high, self.step, self.max_value = low, high, step, max_value

    def update(self, measured: float) -> float:
        change = self.step * ((measured < self.low) - (measured > self.high))
        return min(max(self.value + change, 0.0), self.max_value)
