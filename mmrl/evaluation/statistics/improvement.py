"""One-sided paired test of whether a policy is better than another on the same held-out problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import comb, isclose, sqrt
from statistics import NormalDist, mean, stdev

from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import drop_errors

POWER = 0.8


@dataclass(frozen=True)
class Improvement:
    """Paired comparison of two policies on the problems that both finished.

    Args:
        pairs: number of common problems.
        difference: mean over them of the improvement, positive where the second policy is better.
        p_value: probability of an improvement at least as large if the second policy is no better.
        deviation: standard deviation of the improvement of a problem.
    """

    pairs: int
    difference: float
    p_value: float
    deviation: float

    def detectable(self, error_rate: float) -> float:
        """Compute the improvement that this test finds with 80 % power.

        (z_{1 - error_rate} + z_0.8) deviation / sqrt(pairs), z the normal quantile. Infinite without pairs.
        """
        quantiles = NormalDist().inv_cdf(1 - error_rate) + NormalDist().inv_cdf(POWER)
        return quantiles * self.deviation / sqrt(self.pairs) if self.pairs else float("inf")


def measure_problems(evaluator: Evaluator, metric: str, episodes: Sequence[Episode]) -> dict[str, float]:
    """Compute a metric of every problem by itself, by the problem's key.

    Problems without finished episodes are left out.

    Raises:
        ValueError: the metric of all problems is not the mean of these, so that problems cannot be paired.
    """
    groups: dict[str, list[Episode]] = {}
    for episode in drop_errors(episodes):
        groups.setdefault(episode.prompt.key, []).append(episode)
    values = {key: float(evaluator(group)[metric]) for key, group in groups.items()}
    if len({len(group) for group in groups.values()}) == 1:  # otherwise problems have unequal weights in the metric
        overall = float(evaluator(episodes)[metric])
        if not isclose(mean(values.values()), overall, rel_tol=1e-6, abs_tol=1e-9):
            raise ValueError(
                f"the metric {metric!r} of {type(evaluator).__name__} is {overall:.6g} and the mean over its problems "
                f"{mean(values.values()):.6g}, so problems cannot be compared in pairs; monitor a mean over problems"
            )
    return values


def compare_problems(before: Mapping[str, float], after: Mapping[str, float], mode: str = "max") -> Improvement:
    """Test whether the values of the same problems improved.

    d_i = after_i - before_i (before_i - after_i for mode="min"). Where all d_i other than 0 have one size, as those of
    successes have, the test is McNemar's, one-sided and exact: P[X >= w], X ~ Binomial(w + l, 1/2), with w positive and
    l negative d_i. Otherwise it is Student's paired t test.

    Args:
        before: value of each problem under the first policy.
        after: the same under the second one; only common problems count.
        mode: max where higher values are better, min where lower ones are.

    Source: McNemar, "Note on the sampling error of the difference between correlated proportions", 1947; Student, "The
    probable error of a mean", 1908.
    """
    sign = {"max": 1.0, "min": -1.0}[mode]
    changes = [sign * (after[key] - value) for key, value in before.items() if key in after]
    if len(changes) < 2:
        return Improvement(len(changes), mean(changes) if changes else 0.0, 1.0, 0.0)
    sizes = [abs(change) for change in changes if change]
    won, lost = sum(change > 0 for change in changes), sum(change < 0 for change in changes)
    if all(isclose(size, sizes[0], rel_tol=1e-9) for size in sizes):
        p_value = sum(comb(won + lost, k) for k in range(won, won + lost + 1)) / 2 ** (won + lost)
    else:
        from scipy.stats import ttest_1samp  # its import takes longer than all else here

        p_value = float(ttest_1samp(changes, 0.0, alternative="greater").pvalue)
    return Improvement(len(changes), mean(changes), p_value, stdev(changes))


@dataclass
class BestValues:
    """Values of every problem under the best policy of a run, and the rule by which a later one replaces it.

    Args:
        values: by the problem's key; empty before the first policy.
        iteration: of the best policy.
        waited: policies since then that did not replace it.
    """

    values: dict[str, float] = field(default_factory=dict)
    iteration: int = 0
    waited: int = 0

    def challenge(
        self, values: Mapping[str, float], iteration: int, error_rate: float, mode: str = "max"
    ) -> Improvement:
        """Replace the best policy where the p-value is at most `error_rate`, or where no problem is common to both."""
        result = compare_problems(self.values, values, mode)
        if not result.pairs or result.p_value <= error_rate:
            self.values, self.iteration, self.waited = dict(values), iteration, 0
        else:
            self.waited += 1
        return result
