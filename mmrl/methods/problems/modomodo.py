"""MoDoMoDo: data mixture with the highest held-out score under a quadratic model of pilot runs.

MoDoMoDo: Multi-Domain Data Mixtures for Multimodal LLM Reinforcement Learning, 2025, arXiv:2505.24871.

- the score as a function of the mixture, fitted to pilot runs: `fit_surrogate`, `predict_score`
- its best mixture on a grid: `list_mixtures`, `find_best_mixture`
- prompts of each task with the probability of its weight: `WeightedTasks`
- the weights that the surrogate of evaluated pilots predicts to be best: `read_pilots`, `SurrogateMixture`

A pilot is a run of the recipe with other `data.curriculum.weights`; `mmrl rounds modomodo` runs all of it.
"""

from __future__ import annotations

import glob
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from mmrl.core.errors import ConfigError, check_at_least, check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context
from mmrl.curricula.balanced import BalancedTasks
from mmrl.files.atomic import write_file
from mmrl.files.strict_json import read_json_object

log = logging.getLogger(__name__)


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


def read_pilots(pattern: str, metric: str) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Read the evaluations of pilots: names of the tasks, mixtures [P, m], scores [P].

    Args:
        pattern: of folders that `mmrl evaluate` wrote, whose config.yaml has data.curriculum.weights of the pilot.
        metric: of the scores: decode/evaluator, whose `mean` counts, or decode/evaluator/number.

    Raises:
        ConfigError: naming the folder and what it lacks.
    """
    folders = [Path(place) for place in sorted(glob.glob(pattern))]
    if not folders:
        raise ConfigError(f"curriculum.pilots={pattern}: no such folder; name those of the pilots' evaluations")
    weights, scores = [], []
    for folder in folders:
        file = folder / "config.yaml"
        node: Any = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else {}
        for key in ("data", "init_args", "curriculum", "init_args", "weights"):
            node = (node or {}).get(key)
        if not isinstance(node, dict) or not node:
            raise ConfigError(f"{file} has no data.curriculum.weights; evaluate with the weights of the pilot")
        weights.append(node)
        scores.append(_read_score(folder, metric))
    names = sorted(set().union(*weights))
    return names, np.array([[each.get(name, 0.0) for name in names] for each in weights]), np.array(scores)


def _read_score(folder: Path, metric: str) -> float:
    """Read one number of an evaluation of one checkpoint."""
    decode, _, path = metric.partition("/")
    evaluator, _, number = path.partition("/")
    file = folder / "evaluation.json"
    (metrics,) = read_json_object(file, f"measure again: mmrl evaluate {folder}", finite=False)["metrics"].values()
    value = metrics.get(decode, {}).get(evaluator, {}).get(number or "mean")
    if value is None:
        known = [f"{name}/{each}" for name, evaluators in metrics.items() for each in evaluators]
        raise ConfigError(f"{file} has no {metric}, by curriculum.metric; there are {known}")
    return float(value)


class SurrogateMixture(WeightedTasks):
    """Draw tasks by the mixture that a quadratic surrogate of evaluated pilots predicts to be best.

    Source: MoDoMoDo, 2025, arXiv:2505.24871: model-based mixture, `fit_surrogate` and `find_best_mixture`.

    Args:
        weights: as of `WeightedTasks`; their names must be those of the pilots, and their values are replaced.
        pilots: pattern of the folders of the pilots' evaluations, see `read_pilots`.
        metric: held-out score of a pilot: decode/evaluator, or decode/evaluator/number.
        ridge: penalty on the squares of the coefficients; above 0 where there are fewer pilots than coefficients.
        steps: weights are multiples of 1 / steps.
        report: file that gets pilots, scores, coefficients and the mixture; None for none.
        info_key: entry of a prompt's `info` that names its task.
    """

    def __init__(
        self,
        weights: Mapping[str, float],
        pilots: str,
        metric: str = "greedy/exact",
        ridge: float = 1e-4,
        steps: int = 20,
        report: str | None = None,
        info_key: str = "task",
    ):
        check_interval("curriculum", "[0, inf)", ridge=ridge)
        check_at_least(1, "curriculum", steps=steps)
        super().__init__(weights, info_key)
        self.pilots, self.metric, self.ridge, self.steps, self.report = pilots, metric, ridge, steps, report
        self.surrogate: dict[str, Any] = {}  # once the pilots were read, before the first iteration

    def select(self, count: int, ctx: Context) -> list[int]:
        if not self.surrogate:
            self.surrogate = self._fit()
            self.weights = dict(sorted(self.surrogate["mixture"].items()))
            log.info("modomodo: mixture %s, predicted %.3f", self.weights, self.surrogate["predicted"])
            if self.report is not None and ctx.rank == 0:
                write_file(Path(self.report), json.dumps(self.surrogate, indent=2) + "\n")
        return super().select(count, ctx)

    def _fit(self) -> dict[str, Any]:
        """Fit the surrogate to the pilots, and find its best mixture."""
        names, mixtures, scores = read_pilots(self.pilots, self.metric)
        if names != sorted(self.weights):
            raise ConfigError(
                f"curriculum.weights names {sorted(self.weights)}, and {self.pilots} the tasks {names}; name the same"
            )
        coefficients = fit_surrogate(mixtures, scores, self.ridge)
        best, predicted = find_best_mixture(coefficients, len(names), self.steps)
        return _describe(names, mixtures, scores, coefficients, best, predicted)


def _describe(
    names: Sequence[str],
    mixtures: np.ndarray,
    scores: np.ndarray,
    coefficients: np.ndarray,
    best: Sequence[float],
    predicted: float,
) -> dict[str, Any]:
    """Plain values of a surrogate: pilots with their residuals, coefficients by task and pair, the best mixture."""
    residuals = scores - predict_score(coefficients, mixtures)
    keys = [*names, *(f"{one} {other}" for one, other in combinations(names, 2))]
    return {
        "pilots": [
            {"weights": dict(zip(names, row)), "score": score, "residual": residual}
            for row, score, residual in zip(mixtures.tolist(), scores.tolist(), residuals.tolist())
        ],
        "coefficients": dict(zip(keys, coefficients.tolist())),
        "mixture": dict(zip(names, best)),
        "predicted": predicted,
    }
