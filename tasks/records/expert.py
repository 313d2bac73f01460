"""Patients of a simulated clinic, and a logistic model that is fitted to them: its contributions are the attention."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mmrl.core.rng import derive_rng

COLUMNS = ("hr", "lac", "ph", "spo", "bp", "tmp", "gcs", "wbc")
_STD = (99 / 12) ** 0.5  # of a digit


def standardise(values: np.ndarray) -> np.ndarray:
    """Digits as numbers with mean 0 and variance 1."""
    return (values - 4.5) / _STD


@lru_cache(maxsize=8)
def draw_effects(informative: int, seed: int) -> np.ndarray:
    """[8] effect of each column on the label: 1 or -1 for some columns, 0 for the others."""
    rng = derive_rng("records", "effects", seed)
    effects = np.zeros(len(COLUMNS))
    effects[rng.permutation(len(COLUMNS))[:informative]] = rng.choice([-1.0, 1.0], informative)
    return effects


def draw_patient(rng: np.random.Generator, informative: int, seed: int, noise: float) -> tuple[np.ndarray, int]:
    """Draw the digits [8] of a patient and the label, 1 for risk."""
    values = rng.integers(10, size=len(COLUMNS))
    score = draw_effects(informative, seed) @ standardise(values) + noise * rng.normal()
    return values, int(score > 0)


@dataclass(frozen=True)
class LogisticExpert:
    """Logistic regression. Args: weights: [8]; bias."""

    weights: tuple[float, ...]
    bias: float

    def risk(self, values: np.ndarray) -> float:
        """Probability of the label 1."""
        return float(1 / (1 + np.exp(-(np.array(self.weights) @ standardise(values) + self.bias))))

    def salient(self, values: np.ndarray, count: int) -> tuple[str, ...]:
        """The columns with the largest |weight * value|, largest first."""
        share = np.abs(np.array(self.weights) * standardise(values))
        return tuple(COLUMNS[i] for i in np.argsort(-share, kind="stable")[:count])


@lru_cache(maxsize=8)
def fit_expert(informative: int, seed: int, noise: float, patients: int = 2000, steps: int = 200) -> LogisticExpert:
    """Fit a logistic regression to patients of its own by gradient descent on the cross-entropy."""
    rng = derive_rng("records", "expert", seed)
    records = [draw_patient(rng, informative, seed, noise) for _ in range(patients)]
    x, y = standardise(np.stack([values for values, _ in records])), np.array([label for _, label in records])
    weights, bias = np.zeros(len(COLUMNS)), 0.0
    for _ in range(steps):
        error = 1 / (1 + np.exp(-(x @ weights + bias))) - y
        weights, bias = weights - x.T @ error / patients, bias - float(error.mean())
    return LogisticExpert(tuple(weights.tolist()), bias)
