"""Confidence intervals of rates (Wilson) and McNemar's test."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import comb, inf, sqrt
from statistics import mean, stdev

from mmrl.evaluation.statistics.power import quantile


def wilson(successes: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Compute the Wilson confidence interval of a success probability.

    (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n), p = successes / n, z the normal quantile of
    (1 + level) / 2. For a sum of n values in [0, 1] that are not all 0 or 1 it is too wide, never too narrow, because
    p(1-p) bounds their variance. Without observations it is [0, 1].

    Source: Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22, 1927.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie between 0 and n, got {successes} of {n}")
    if n == 0:
        return 0.0, 1.0
    z = quantile(level)
    p = successes / n
    midpoint, half_width = p + z * z / (2 * n), z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # at the ends the formula gives exactly 0 and 1, up to rounding
    lower = 0.0 if successes == 0 else (midpoint - half_width) / scale
    upper = 1.0 if successes == n else (midpoint + half_width) / scale
    return lower, upper


def student_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Compute Student's t interval of the mean over seeds; infinite for fewer than two values."""
    from scipy.stats import t as student  # its import takes longer than all else here

    if len(values) < 2:
        return (-inf, inf)
    half = float(student.ppf((1 + level) / 2, len(values) - 1)) * stdev(values) / sqrt(len(values))
    return mean(values) - half, mean(values) + half


def disjoint(first: tuple[float, float], second: tuple[float, float]) -> bool:
    """Whether two intervals have no point in common."""
    return first[1] < second[0] or second[1] < first[0]


def mcnemar(before: Sequence[bool], after: Sequence[bool]) -> float:
    """Compute the p-value of McNemar's exact two-sided test of two policies on the same problems.

    min(1, 2 P[X <= min(b, c)]), X ~ Binomial(b + c, 1/2), where b problems are solved before only and c after only.
    Entry i of both sequences is the same problem.

    Source: McNemar, "Note on the sampling error of the difference between correlated proportions", 1947.
    """
    if len(before) != len(after):
        raise ValueError(f"both sequences must have the same problems, got {len(before)} and {len(after)}")
    lost = sum(bool(x) and not y for x, y in zip(before, after))
    won = sum(bool(y) and not x for x, y in zip(before, after))
    tail = sum(comb(lost + won, k) for k in range(min(lost, won) + 1))
    return float(min(Fraction(1), Fraction(2 * tail, 2 ** (lost + won))))
