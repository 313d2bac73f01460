"""Statistical power: sample sizes and minimum detectable differences of success rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, isclose, sqrt
from statistics import NormalDist, stdev


def quantile(level: float) -> float:
    """Return the normal quantile of (1 + level) / 2, for two-sided intervals and tests."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    return NormalDist().inv_cdf((1 + level) / 2)


def episodes_needed(first: float, second: float, level: float = 0.95, power: float = 0.8) -> int:
    """Compute the number of independent episodes per policy that detect success rates p and q with probability `power`.

    n = (z_level sqrt(2 m (1 - m)) + z_power sqrt(p (1 - p) + q (1 - q)))^2 / (p - q)^2, m = (p + q) / 2; two-sided
    test of two proportions at 1 - level, without continuity correction.

    Source: Fleiss, Levin and Paik, "Statistical Methods for Rates and Proportions", 2003, chapter 4.
    """
    _check_rates(first, second)
    if first == second:
        raise ValueError(f"the two rates are both {first}; give two different rates")
    return _whole((_scaled_std(first, second, level, power) / (first - second)) ** 2)


def detectable(n: int, rate: float, level: float = 0.95, power: float = 0.8) -> tuple[float | None, float | None]:
    """Compute the nearest rates below and above `rate` that n independent episodes per policy detect.

    Solves `episodes_needed` for the other rate; None if not even 0 or 1 is detectable.
    """
    _check_count(n)
    _check_rates(rate)

    def detectable_excess(other: float) -> float:
        return abs(rate - other) * sqrt(n) - _scaled_std(rate, other, level, power)

    return _crossing(detectable_excess, rate, 0.0), _crossing(detectable_excess, rate, 1.0)


def minimum_detectable_difference(n: int, rate: float = 0.5, level: float = 0.95, power: float = 0.8) -> float | None:
    """Compute the smaller difference of `detectable`; None if n episodes detect none."""
    gaps = [abs(other - rate) for other in detectable(n, rate, level, power) if other is not None]
    return min(gaps, default=None)


def pairs_needed(difference: float, differing: float, level: float = 0.95, power: float = 0.8) -> int:
    """Compute the number of common problems from which McNemar's test detects a difference of two policies' rates.

    n = (z_level sqrt(s) + z_power sqrt(s - d^2))^2 / d^2, d the difference, s the fraction of problems that exactly one
    of the two solves.

    Source: Connor, "Sample size for testing differences in proportions for the paired-sample design", Biometrics 43,
    1987.
    """
    if not 0 < difference <= differing <= 1:
        raise ValueError(f"needs 0 < difference <= differing <= 1, got {difference} and {differing}")
    return _whole((_paired_scaled_std(difference, differing, level, power) / difference) ** 2)


def detectable_in_pairs(n: int, differing: float, level: float = 0.95, power: float = 0.8) -> float | None:
    """Compute the smallest difference of rates that n common problems detect.

    `differing` is the fraction of the problems that exactly one policy solves.

    None if even `differing`, the largest possible difference, is too small.
    """
    _check_count(n)
    _check_rates(differing)

    def detectable_excess(difference: float) -> float:
        return difference * sqrt(n) - _paired_scaled_std(difference, differing, level, power)

    return _crossing(detectable_excess, 0.0, differing)


def detectable_mean(values: Sequence[float], level: float = 0.95, power: float = 0.8) -> float | None:
    """Compute the smallest true mean that Student's test finds with `power`, from as many values as spread as these.

    The test is two-sided at 1 - level. With a true mean d its statistic has a noncentral t distribution with n - 1
    degrees of freedom and noncentrality d sqrt(n) / s, s the standard deviation of the values. The chance of a
    significant mean of the wrong sign, below 1e-8 at a power of 0.8, is left out. None for fewer than two values.

    Source: Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988, chapter 2.
    """
    from scipy.optimize import brentq  # imports that take longer than all else here
    from scipy.stats import nct, t

    if len(values) < 2:
        return None
    freedom = len(values) - 1
    limit = float(t.ppf((1 + level) / 2, freedom))
    noncentrality = brentq(lambda nc: float(nct.sf(limit, freedom, nc)) - power, 0.0, 3 * limit + 5)
    return float(noncentrality) * stdev(values) / sqrt(len(values))


def _scaled_std(p: float, q: float, level: float, power: float) -> float:
    middle = (p + q) / 2
    apart = sqrt(p * (1 - p) + q * (1 - q))
    return quantile(level) * sqrt(2 * middle * (1 - middle)) + _quantile_of_power(power) * apart


def _paired_scaled_std(difference: float, differing: float, level: float, power: float) -> float:
    rest = sqrt(max(differing - difference**2, 0.0))
    return quantile(level) * sqrt(differing) + _quantile_of_power(power) * rest


def _quantile_of_power(power: float) -> float:
    if not 0 < power < 1:
        raise ValueError(f"power must lie between 0 and 1, got {power}")
    return NormalDist().inv_cdf(power)


def _crossing(detectable_excess: Callable[[float], float], near: float, far: float) -> float | None:
    """Find by bisection where `detectable_excess` becomes positive between `near` and `far`; None if nowhere."""
    if near == far or detectable_excess(far) < 0:
        return None
    for _ in range(80):
        middle = (near + far) / 2
        if middle in (near, far):
            break
        near, far = (near, middle) if detectable_excess(middle) >= 0 else (middle, far)
    return far


def _whole(n: float) -> int:
    """Round up, except from a whole number plus a rounding error."""
    return round(n) if isclose(n, round(n), rel_tol=1e-9) else ceil(n)


def _check_count(n: int) -> None:
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")


def _check_rates(*rates: float) -> None:
    for rate in rates:
        if not 0 <= rate <= 1:
            raise ValueError(f"rate must lie between 0 and 1, got {rate}")
