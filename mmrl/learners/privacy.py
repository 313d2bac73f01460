"""Differential privacy: what a run may spend, and the accountant of what it has spent."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from mmrl.core.errors import ConfigError, check_interval, check_positive

TOLERANCE = 5e-3
"""Relative, of a computed noise multiplier, which is never below the exact one."""
LEAST_NOISE = 0.3
"""Smallest noise multiplier that is computed."""


@dataclass(frozen=True)
class PrivacyBudget:
    """Clipping, noise and budget of private gradients; examples are the problems of the task.

    Args:
        delta: probability of the (epsilon, delta) guarantee to fail; below 1 / number of problems.
        clip_norm: largest norm of the gradient of one example (C).
        target_epsilon: the run stops before it spends more; None for no limit.
        noise_multiplier: standard deviation of the noise on the sum of gradients, in units of clip_norm; None for the
            smallest one with which all iterations of the run spend target_epsilon.
        noise_seed: of the noise; None for the run's seed. Who knows it can subtract the noise.
    """

    delta: float
    clip_norm: float = 1.0
    target_epsilon: float | None = None
    noise_multiplier: float | None = None
    noise_seed: int | None = None

    def __post_init__(self) -> None:
        check_interval("model.privacy", "(0, 1)", delta=self.delta)
        check_positive("model.privacy", clip_norm=self.clip_norm)
        for name in ("target_epsilon", "noise_multiplier"):
            if getattr(self, name) is not None:
                check_positive("model.privacy", **{name: getattr(self, name)})
        if self.target_epsilon is None and self.noise_multiplier is None:
            raise ConfigError(
                "model.privacy has neither target_epsilon nor noise_multiplier, so that the noise is unknown; give one"
            )
        if find_spec("dp_accounting") is None:
            raise ConfigError(
                "model.privacy needs dp-accounting, which computes epsilon and is not installed: "
                "pip install 'mmrl-lightning[private]'"
            )


class PrivacyAccountant:
    """Privacy loss of steps on Poisson samples with Gaussian noise, by dp-accounting's privacy loss distributions.

    Neighbouring data sets differ in one example that is added or removed.

    Args:
        delta: of the (epsilon, delta) guarantee.
    """

    def __init__(self, delta: float):
        self.delta = delta
        self.history: list[list[float]] = []  # [sampling rate, noise multiplier, steps], in the order of the steps
        self._known: dict[tuple, float] = {}  # epsilon of histories that were asked for

    @property
    def steps(self) -> int:
        return int(sum(steps for _, _, steps in self.history))

    def add(self, rate: float, noise: float, steps: int = 1) -> None:
        """Count steps on samples that have each example with probability `rate`."""
        self.history = _extend(self.history, rate, noise, steps)

    def epsilon(self) -> float:
        """Epsilon of all steps so far."""
        return self._epsilon(self.history)

    def epsilon_after(self, rate: float, noise: float, steps: int = 1) -> float:
        """Epsilon if these steps followed."""
        return self._epsilon(_extend(self.history, rate, noise, steps))

    def calibrate(self, rate: float, steps: int, target: float) -> float:
        """Smallest noise multiplier with which `steps` further steps keep epsilon within the target.

        Raises:
            ConfigError: the steps so far have spent the target.
        """
        if self.history and self.epsilon() >= target:
            raise ConfigError(
                f"model.privacy.target_epsilon={target:g} is spent: {self.steps} steps so far have epsilon "
                f"{self.epsilon():.4g}; no further step is possible"
            )
        low, high = 0.0, 1.0
        while self.epsilon_after(rate, high, steps) > target:
            low, high = high, 2 * high
        while high - low > TOLERANCE * high:  # epsilon(low) > target >= epsilon(high)
            middle = max((low + high) / 2, 0.8 * high)  # small noise takes long to count
            if middle < LEAST_NOISE:
                raise ConfigError(
                    f"model.privacy.target_epsilon={target:g} allows noise below {LEAST_NOISE} times clip_norm, which "
                    "hides nothing; lower it, or set noise_multiplier"
                )
            if self.epsilon_after(rate, middle, steps) > target:
                low = middle
            else:
                high = middle
        return high

    def state_dict(self) -> dict[str, Any]:
        return {"history": [list(entry) for entry in self.history]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.history = [list(entry) for entry in state["history"]]

    def _epsilon(self, history: list[list[float]]) -> float:
        key = tuple(map(tuple, history))
        if key not in self._known:
            accountant = _build_accountant()
            self._known[key] = float(accountant.compose(_build_event(history)).get_epsilon(self.delta)) if key else 0.0
        return self._known[key]


def _extend(history: list[list[float]], rate: float, noise: float, steps: int) -> list[list[float]]:
    """History with further steps, joined to the last entry if they are alike."""
    if history and history[-1][:2] == [rate, noise]:
        return [*history[:-1], [rate, noise, history[-1][2] + steps]]
    return [*history, [rate, noise, steps]]


def _build_accountant() -> Any:
    from dp_accounting import pld

    return pld.PLDAccountant()


def _build_event(history: list[list[float]]) -> Any:
    import dp_accounting as dp

    return dp.ComposedDpEvent(
        [
            dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise)), int(steps))
            for rate, noise, steps in history
        ]
    )
