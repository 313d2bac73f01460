"""ALP-GMM: draw levels where returns change fastest, from Gaussian mixtures over levels and learning progress.

Teacher algorithms for curriculum learning of Deep RL in continuously parameterized environments, 2019,
arXiv:1910.07224, algorithm 1.

- absolute learning progress of an episode: `absolute_progress`
- the mixture with the lowest AIC: `fit_mixture`
- the choice of a component: `component_probs`
- the curriculum: `ALPGMM`
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.rng import derive_seed
from mmrl.curricula.levels import LevelCurriculum

NEIGHBOURS_FROM = 5
"""Episodes that must have been seen before progress is measured; up to then it is 0."""


@dataclass(frozen=True)
class LevelMixture:
    """Gaussian components over [level, progress]: means [K, D + 1], covariances [K, D + 1, D + 1]."""

    means: np.ndarray
    covariances: np.ndarray

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw a level [D]: a component in proportion to its mean progress, then a point of it without progress."""
        component = rng.choice(len(self.means), p=component_probs(self.means[:, -1]))
        return rng.multivariate_normal(self.means[component], self.covariances[component])[:-1]


class ALPGMM(LevelCurriculum):
    """Draws levels from the components of a mixture in proportion to their mean absolute learning progress (ALP).

    An episode at level x with return R has ALP |R - R'|, where R' is the return of the earlier episode at the nearest
    level; 0 for the first six. After every `fit_rate` episodes, mixtures of 2 to `components` Gaussians with full
    covariances are fitted to the last `fit_rate` vectors [x, ALP], and that with the lowest AIC is kept. A level is
    uniform with probability `random_ratio` and before the first fit. Levels are in the unit cube, and the ALP of a fit
    is divided by the range of all returns so far, so that no unit matters.
    Source: Teacher algorithms for curriculum learning of Deep RL in continuously parameterized environments, 2019,
    algorithm 1, arXiv:1910.07224.

    Args:
        fit_rate: episodes between two fits, more than `components`.
        random_ratio: probability of a uniform level.
        components: most Gaussians of a mixture, at least 2.
        score_name: what progress is measured of; "return": the sum of the rewards of the whole episode.
    """

    def __init__(
        self, fit_rate: int = 250, random_ratio: float = 0.2, components: int = 10, score_name: str = "return"
    ):
        super().__init__(score_name)
        check_fraction("curriculum", random_ratio=random_ratio)
        check_at_least(2, "curriculum", components=components)
        check_at_least(components + 1, "curriculum", fit_rate=fit_rate)
        self.fit_rate, self.random_ratio, self.components = fit_rate, random_ratio, components
        self.levels = np.zeros((0, 0))  # of all episodes, in the unit cube, [n, D]
        self.returns, self.progress = np.zeros(0), np.zeros(0)  # [n]
        self.mixture: LevelMixture | None = None

    def draw(self, dims: int, rng: np.random.Generator) -> np.ndarray:
        if self.mixture is None or rng.random() < self.random_ratio:
            return rng.random(dims)
        return self.mixture.draw(rng)

    def learn(self, level: np.ndarray, value: float) -> None:
        progress = absolute_progress(self.levels, self.returns, level, value)
        self.levels = np.concatenate([self.levels.reshape(-1, len(level)), level[None]])
        self.returns, self.progress = np.append(self.returns, value), np.append(self.progress, progress)
        if len(self.returns) % self.fit_rate == 0:
            last = slice(-self.fit_rate, None)
            vectors = np.column_stack([self.levels[last], self.progress[last] / (np.ptp(self.returns) or 1.0)])
            self.mixture = fit_mixture(vectors, self.components, derive_seed("alp_gmm", len(self.returns)) % 2**32)

    def state_dict(self) -> dict[str, Any]:
        state = {name: getattr(self, name).tolist() for name in ("levels", "returns", "progress")}
        if self.mixture is not None:
            state |= {"means": self.mixture.means.tolist(), "covariances": self.mixture.covariances.tolist()}
        return {**super().state_dict(), **state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.levels = np.array(state["levels"]) if state["levels"] else np.zeros((0, 0))
        self.returns, self.progress = np.array(state["returns"]), np.array(state["progress"])
        fitted = "means" in state
        self.mixture = LevelMixture(np.array(state["means"]), np.array(state["covariances"])) if fitted else None


def absolute_progress(levels: np.ndarray, returns: np.ndarray, level: np.ndarray, value: float) -> float:
    """Return |R - R'|, R' the return of the nearest of the earlier levels, of equally near ones the first.

    It is 0 unless there are more than 5 earlier ones.

    Args:
        levels: of earlier episodes, [n, D].
        returns: of earlier episodes, [n].
        level: of the new episode, [D].
        value: return R of the new episode.
    """
    if len(levels) <= NEIGHBOURS_FROM:
        return 0.0
    distances = ((levels - level) ** 2).sum(axis=1)
    return abs(value - float(returns[distances.argmin()]))


def component_probs(progress: np.ndarray) -> np.ndarray:
    """Return probabilities [K] in proportion to the components' mean progress [K]; equal ones where all are 0."""
    weights = np.maximum(progress, 0.0)
    total = weights.sum()
    return weights / total if total > 0 else np.full(len(weights), 1 / len(weights))


def fit_mixture(vectors: np.ndarray, most: int, seed: int) -> LevelMixture:
    """Fit mixtures of 2 to `most` Gaussians with full covariances to vectors [n, D + 1]; keep the lowest AIC.

    Args:
        vectors: a level and its progress in each row.
        most: largest number of Gaussians.
        seed: of the initial means.
    """
    fits = [GaussianMixture(count, covariance_type="full", random_state=seed) for count in range(2, most + 1)]
    with warnings.catch_warnings():
        # vectors that are equal give fewer clusters than Gaussians; the fit is sound
        warnings.simplefilter("ignore", ConvergenceWarning)
        best = min((fit.fit(vectors) for fit in fits), key=lambda fit: fit.aic(vectors))
    return LevelMixture(best.means_, best.covariances_)
