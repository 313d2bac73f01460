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
from collections.abc import Sequence
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
        self.levels: list[list[float]] = []  # of all episodes, in the unit cube
        self.returns: list[float] = []
        self.progress: list[float] = []
        self.mixture: LevelMixture | None = None

    def draw(self, dims: int, rng: np.random.Generator) -> np.ndarray:
        if self.mixture is None or rng.random() < self.random_ratio:
            return rng.random(dims)
        return self.mixture.draw(rng)

    def learn(self, level: np.ndarray, value: float) -> None:
        self.progress.append(absolute_progress(self.levels, self.returns, level, value))
        self.levels.append(level.tolist())
        self.returns.append(value)
        if len(self.returns) % self.fit_rate == 0:
            last = slice(-self.fit_rate, None)
            spread = max(self.returns) - min(self.returns)
            progress = np.array(self.progress[last]) / (spread or 1.0)
            vectors = np.column_stack([np.array(self.levels[last]), progress])
            self.mixture = fit_mixture(vectors, self.components, derive_seed("alp_gmm", len(self.returns)) % 2**32)

    def state_dict(self) -> dict[str, Any]:
        mixture = self.mixture and {
            "means": self.mixture.means.tolist(),
            "covariances": self.mixture.covariances.tolist(),
        }
        history = {"levels": self.levels, "returns": self.returns, "progress": self.progress}
        return {**super().state_dict(), **{name: list(part) for name, part in history.items()}, "mixture": mixture}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.levels, self.returns = [list(level) for level in state["levels"]], list(state["returns"])
        self.progress, mixture = list(state["progress"]), state["mixture"]
        self.mixture = mixture and LevelMixture(np.array(mixture["means"]), np.array(mixture["covariances"]))


def absolute_progress(
    levels: Sequence[Sequence[float]], returns: Sequence[float], level: np.ndarray, value: float
) -> float:
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
    distances = ((np.asarray(levels) - level) ** 2).sum(axis=1)
    return abs(value - returns[int(distances.argmin())])


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
