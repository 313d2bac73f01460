"""MoDoMoDo: data mixture with the highest held-out score under a quadratic model of pilot runs.

MoDoMoDo: Multi-Domain Data Mixtures for Multimodal LLM Reinforcement Learning, 2025, arXiv:2505.24871.

- the score as a function of the mixture, fitted to pilot runs: `fit_surrogate`, `predict_score`
- its best mixture on a grid: `list_mixtures`, `find_best_mixture`
- prompts of each task with the probability of its weight: `WeightedTasks`

A pilot is a run of the recipe with other `data.curriculum.weights`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from mmrl.core.rng import derive_rng
from mmrl.core.types import Context
from mmrl.curricula.balanced import BalancedTasks


def fit_surrogate(
    mixtures: np.ndarray,  # [P, m] weights of the tasks, each row sums to 1
    scores: np.ndarray,  # [P] held-out score of each pilot run
    ridge: float = 0.0,
) -> np.ndarray:  # [m + m (m - 1) / 2]
    """Coefficients of y = sum_i b_i w_i + sum_{i<j} c_ij w_i w_j by least squares, b first, then c_12, c_13, ...

    On the simplex this has every quadratic function of the weights. Source: MoDoMoDo, 2025, arXiv:2505.24871.

    Args:
        mixtures: of the pilot runs.
        scores: of the pilot runs.
        ridge: penalty on the squares of the coefficients; above 0 where there are fewer pilots than coefficients.
    """
    features = _expand(mixtures)
    size = features.shape[1]
    if ridge == 0 and np.linalg.matrix_rank(features) < size:
        raise ValueError(
            f"the {len(features)} pilot mixtures do not determine {size} coefficients; add pilots, such as every task "
            "alone and every pair, or set ridge above 0, as 1e-4"
        )
    return np.linalg.solve(features.T @ features + ridge * np.eye(size), features.T @ scores)


def predict_score(coefficients: np.ndarray, mixtures: np.ndarray) -> np.ndarray:
    """Score [P] of mixtures [P, m] by the coefficients of `fit_surrogate`."""
    return _expand(mixtures) @ coefficients


def list_mixtures(tasks: int, steps: int) -> Iterator[tuple[float, ...]]:
    """Every mixture of so many tasks whose weights are multiples of 1 / steps."""
    for bars in combinations(range(steps + tasks - 1), tasks - 1):
        edges = (-1, *bars, steps + tasks - 1)
        yield tuple((after - before - 1) / steps for before, after in pairwise(edges))


def find_best_mixture(coefficients: np.ndarray, tasks: int, steps: int = 20) -> tuple[tuple[float, ...], float]:
    """Mixture of the grid with the highest predicted score, and this score."""
    grid = list(list_mixtures(tasks, steps))
    scores = predict_score(coefficients, np.array(grid))
    best = int(scores.argmax())
    return grid[best], float(scores[best])


def _expand(mixtures: np.ndarray) -> np.ndarray:
    """Weights and their products, [P, m + m (m - 1) / 2]."""
    w = np.asarray(mixtures, dtype=float)
    products = [w[:, i] * w[:, j] for i, j in combinations(range(w.shape[1]), 2)]
    return np.concatenate([w, np.stack(products, axis=1)], axis=1) if products else w


class WeightedTasks(BalancedTasks):
    """Draw the task of each problem with the probability of its weight, and its problems in seeded permutations.

    Source: MoDoMoDo, 2025, arXiv:2505.24871.

    Args:
        weights: by the name of the task, with sum 1; a task that is not named takes no part.
        info_key: entry of a prompt's `info` that names its task.
    """

    def __init__(self, weights: Mapping[str, float], info_key: str = "task"):
        super().__init__(info_key)
        if min(weights.values(), default=-1) < 0 or not math.isclose(sum(weights.values()), 1, abs_tol=1e-6):
            raise ValueError(f"curriculum.weights must be >= 0 with sum 1, got {dict(weights)}")
        self.weights = dict(sorted(weights.items()))
        self.counts = dict.fromkeys(self.weights, 0)  # problems of each task so far

    def select(self, count: int, ctx: Context) -> list[int]:
        self._problems = self._problems or self._sort_problems(ctx)
        if unknown := sorted(set(self.weights) - set(self._problems)):
            raise ValueError(f"curriculum.weights names {unknown}, the tasks are {sorted(self._problems)}")
        rng = derive_rng("weighted_tasks", ctx.seed, sum(self.counts.values()))
        share = np.array(list(self.weights.values()))
        indices = []
        for number in rng.choice(len(share), size=count, p=share / share.sum()):
            name = list(self.weights)[int(number)]
            indices.append(self._find(name, self.counts[name], ctx.seed))
            self.counts[name] += 1
        return indices

    def state_dict(self) -> dict[str, Any]:
        return {"counts": dict(self.counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.counts = dict(state["counts"])
