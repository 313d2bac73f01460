"""MBTL: choose the next training level by a Gaussian process of returns and a linear loss by transfer.

Model-Based Transfer Learning for Contextual Reinforcement Learning, 2024, arXiv:2408.04498.

- the transfer of what is trained so far: `transferred_returns`
- the expected gain of a level: `acquisition`
- the Gaussian process: `predict_returns`
- the curriculum: `MBTL`
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from mmrl.core.errors import check_at_least, check_positive
from mmrl.core.rng import derive_seed
from mmrl.curricula.levels import LevelCurriculum

MOST_CANDIDATES = 2_000
BETA: dict[str, Callable[[int], float]] = {
    "constant": lambda number: 1.0,
    "decreasing": lambda number: 1 / (number + 1),
    "increasing": lambda number: math.sqrt(math.log(number + 1)),
}
"""Weight of the standard deviation when level number k, counted from 1, is chosen."""


class MBTL(LevelCurriculum):
    """Trains on a growing set of levels; each new one is the level of a grid with the largest expected gain.

    The first level is the one in the middle. Every `stage` episodes a level is added, and episodes are drawn from all
    that were chosen. J of a chosen level is the mean of its last `window` returns, divided by the range of all returns
    so far. A Gaussian process through the chosen levels predicts mean mu and deviation s of J; training at x is worth
    J(x) - slope |x - x'| at x', with distances in the unit cube, and the next level is
    argmax mean_x' max(mu(x) + beta s(x) - slope |x - x'| - V(x'), 0), V(x') = max_i J(x_i) - slope |x_i - x'|. Where no
    level has a gain, none is added.
    Source: Model-Based Transfer Learning for Contextual Reinforcement Learning, 2024, arXiv:2408.04498, algorithm 1.

    Args:
        stage: episodes after which the next level is chosen.
        points: levels of the grid per parameter.
        slope: loss of normalised return per unit of distance, over which a parameter goes from bound to bound.
        beta: weight of the deviation: 1, 1 / (k + 1) or sqrt(log(k + 1)) for level number k.
        window: last episodes of a level that are its J.
        score_name: what is predicted; "return": the sum of the rewards of the whole episode.
    """

    def __init__(
        self,
        stage: int = 250,
        points: int = 11,
        slope: float = 0.5,
        beta: Literal["constant", "decreasing", "increasing"] = "constant",
        window: int = 50,
        score_name: str = "return",
    ):
        super().__init__(score_name)
        check_at_least(1, "curriculum", stage=stage, window=window)
        check_at_least(2, "curriculum", points=points)
        check_positive("curriculum", slope=slope)
        if beta not in BETA:
            raise ValueError(f"curriculum.beta must be one of {sorted(BETA)}, got {beta!r}")
        self.stage, self.points, self.slope, self.beta, self.window = stage, points, slope, beta, window
        self.chosen: list[int] = []  # grid numbers of the training levels, in the order of their choice
        self.returns: list[list[float]] = []  # last returns of each of them
        self.episodes, self.lowest, self.highest = 0, math.inf, -math.inf
        self._grid = np.zeros((0, 0))  # [points^D, D]; made when the number of parameters is known

    def draw(self, dims: int, rng: np.random.Generator) -> np.ndarray:
        grid = self._levels(dims)
        if not self.chosen:
            self._add(int(((grid - 0.5) ** 2).sum(axis=1).argmin()))
        return grid[self.chosen[int(rng.integers(len(self.chosen)))]]

    def learn(self, level: np.ndarray, value: float) -> None:
        grid = self._levels(len(level))
        nearest = int(((grid[self.chosen] - level) ** 2).sum(axis=1).argmin())
        self.returns[nearest] = [*self.returns[nearest], value][-self.window :]
        self.lowest, self.highest = min(self.lowest, value), max(self.highest, value)
        self.episodes += 1
        if self.episodes % self.stage == 0 and all(self.returns):
            gains = self._gains(grid)
            gains[self.chosen] = 0.0
            if gains.max() > 0:
                self._add(int(gains.argmax()))

    def _gains(self, grid: np.ndarray) -> np.ndarray:
        """Expected gains [n] of training at each level of the grid, besides those that were chosen."""
        means = np.array([sum(values) / len(values) for values in self.returns])
        normalised = (means - self.lowest) / ((self.highest - self.lowest) or 1.0)
        distances = np.linalg.norm(grid[:, None] - grid[None], axis=-1)
        number = len(self.chosen) + 1
        mean, deviation = predict_returns(grid[self.chosen], normalised, grid, derive_seed("mbtl", number) % 2**32)
        best = transferred_returns(normalised, distances[self.chosen], self.slope)
        return acquisition(mean, BETA[self.beta](number) * deviation, best, distances, self.slope)

    def _add(self, number: int) -> None:
        self.chosen.append(number)
        self.returns.append([])

    def _levels(self, dims: int) -> np.ndarray:
        if self._grid.shape[1] != dims:
            if self.points**dims > MOST_CANDIDATES:
                raise ValueError(
                    f"curriculum.points={self.points} gives {self.points}^{dims} levels, more than {MOST_CANDIDATES}: "
                    "lower it, or name fewer parameters in sim.levels"
                )
            axes = [np.linspace(0.0, 1.0, self.points)] * dims
            self._grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, dims)
        return self._grid

    def state_dict(self) -> dict[str, Any]:
        names = ("episodes", "lowest", "highest")
        lists = {"chosen": list(self.chosen), "returns": [list(values) for values in self.returns]}
        return {**super().state_dict(), **lists, **{name: getattr(self, name) for name in names}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.chosen, self.returns = list(state["chosen"]), [list(values) for values in state["returns"]]
        self.episodes, self.lowest, self.highest = state["episodes"], state["lowest"], state["highest"]


def transferred_returns(returns: np.ndarray, distances: np.ndarray, slope: float) -> np.ndarray:
    """Return V(x') = max_i J(x_i) - slope |x_i - x'| at every level, [n].

    Args:
        returns: J at the trained levels, [k].
        distances: of the trained levels to all, [k, n].
        slope: loss of return per unit of distance.
    """
    return (returns[:, None] - slope * distances).max(axis=0)


def acquisition(
    mean: np.ndarray, bonus: np.ndarray, best: np.ndarray, distances: np.ndarray, slope: float
) -> np.ndarray:
    """Return a(x) = mean_x' max(mean(x) + bonus(x) - slope |x - x'| - best(x'), 0) at every level, [n].

    Args:
        mean: predicted return of a policy that is trained at each level, [n].
        bonus: weighted standard deviation of the prediction, [n].
        best: return at each level of what is trained so far, V, [n].
        distances: between the levels, [n, n].
        slope: loss of return per unit of distance.
    """
    return np.maximum((mean + bonus)[:, None] - slope * distances - best[None], 0.0).mean(axis=1)


def predict_returns(
    levels: np.ndarray, returns: np.ndarray, grid: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Predict mean and standard deviation [n] of returns on a grid by a Gaussian process.

    The kernel is a constant times a Gaussian of a length in [0.01, 100], whose marginal likelihood is maximised from 10
    starts; observations have noise of standard deviation 0.1.

    Args:
        levels: trained levels, [k, D].
        returns: normalised returns of them, [k].
        grid: levels to predict, [n, D].
        seed: of the further starts.
    """
    kernel = ConstantKernel(1.0) * RBF(1.0, (1e-2, 1e2))
    process = GaussianProcessRegressor(kernel, alpha=0.1**2, n_restarts_optimizer=9, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of few levels the best length lies at a bound
        process.fit(levels, returns)
    return process.predict(grid, return_std=True)
