"""How small a difference episodes can show: by hand, against simulation, and the two designs against each other."""

import random

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from mmrl.evaluation.statistics.intervals import mcnemar
from mmrl.evaluation.statistics.power import (
    detectable,
    detectable_in_pairs,
    detectable_mean,
    episodes_needed,
    minimum_detectable_difference,
    pairs_needed,
)


def test_telling_96_from_98_percent_needs_1141_episodes_each():
    # m = 0.97: 1.959964 sqrt(2 * 0.97 * 0.03) = 1.959964 * 0.241247 = 0.472835
    # 0.841621 sqrt(0.96 * 0.04 + 0.98 * 0.02) = 0.841621 * 0.240832 = 0.202689; (0.675524 / 0.02)^2 = 1140.8
    assert episodes_needed(0.96, 0.98) == episodes_needed(0.98, 0.96) == 1141
    assert detectable(1141, 0.96)[1] <= 0.98 < detectable(1140, 0.96)[1]


@pytest.mark.parametrize("n", [20, 512, 5000])
@pytest.mark.parametrize("rate", [0.0, 0.02, 0.3, 0.5, 0.96, 1.0])
def test_what_n_episodes_detect_needs_n_episodes(n, rate):
    for other in detectable(n, rate):
        if other is not None:
            assert episodes_needed(rate, other) == n


def test_the_nearer_side_is_the_minimum_and_nothing_lies_beyond_the_ends():
    below, above = detectable(512, 0.96)
    assert minimum_detectable_difference(512, 0.96) == above - 0.96 < 0.96 - below
    assert detectable(512, 0.0)[0] is None and detectable(512, 1.0)[1] is None
    assert detectable(3, 0.5) == (None, None) and minimum_detectable_difference(3, 0.5) is None


def test_the_difference_is_detected_as_often_as_it_says():
    n, low, rng = 400, 0.4, random.Random(0)
    high = detectable(n, low)[1]
    result = 0
    for _ in range(1500):
        first, second = (sum(rng.random() < rate for _ in range(n)) / n for rate in (low, high))
        pooled = (first + second) / 2
        result += (second - first) / (2 * pooled * (1 - pooled) / n) ** 0.5 > 1.959964
    assert abs(result / 1500 - 0.8) < 0.042  # four standard errors of 1500 trials


def test_pairs_by_hand():
    # 1.959964 sqrt(0.1) = 0.619795; 0.841621 sqrt(0.1 - 0.0025) = 0.262796; (0.882591 / 0.05)^2 = 311.6
    assert pairs_needed(0.05, 0.1) == 312
    assert detectable_in_pairs(312, 0.1) <= 0.05 < detectable_in_pairs(311, 0.1)
    assert detectable_in_pairs(10, 0.1) is None and detectable_in_pairs(500, 0.0) is None


def test_pairs_that_differ_seldom_need_fewer_problems_than_independent_episodes():
    # independent episodes at 0.5 and 0.6 differ in half of all pairs, 0.5 * 0.4 + 0.5 * 0.6, and then gain next to
    # nothing by being paired; problems that both solve or both do not solve gain much
    alone = episodes_needed(0.5, 0.6)
    assert abs(pairs_needed(0.1, 0.5) / alone - 1) < 0.02
    assert pairs_needed(0.1, 0.2) < alone / 2


def test_pairs_are_detected_about_as_often_as_it_says_by_the_exact_test():
    n, differing, rng = 300, 0.2, random.Random(1)
    gap = detectable_in_pairs(n, differing)
    won = (differing + gap) / 2
    result = 0
    for _ in range(600):
        draws = [rng.random() for _ in range(n)]
        before = [won < x < differing for x in draws]
        after = [x < won for x in draws]
        result += mcnemar(before, after) < 0.05
    # the exact test rejects somewhat less often than the normal approximation of the formula: not below 70 %
    assert 0.70 < result / 600 < 0.87


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="n must be at least 1"):
        minimum_detectable_difference(0)
    with pytest.raises(ValueError, match=r"rate must lie between 0 and 1, got 96"):
        detectable(10, 96)
    with pytest.raises(ValueError, match=r"the two rates are both 0\.5"):
        episodes_needed(0.5, 0.5)
    with pytest.raises(ValueError, match="0 < difference <= differing"):
        pairs_needed(0.2, 0.1)
    with pytest.raises(ValueError, match="power must lie between"):
        episodes_needed(0.5, 0.6, power=80)


@pytest.mark.parametrize("n", [2, 3, 5, 16])
def test_a_mean_over_seeds_is_found_as_often_as_it_says(n):
    """20,000 experiments whose seeds have the standard deviation 1 around the mean: the share with p < 0.05."""
    rng = np.random.default_rng(n)
    spread = np.sqrt((n - 1) / n)  # n values -1 and 1 in turn, as many of each, or nearly: scaled to the deviation 1
    values = np.resize([-1.0, 1.0], n)
    values = (values - values.mean()) / values.std() * spread
    size = detectable_mean([3 + value for value in values])
    trials = rng.normal(size, 1.0, size=(20_000, n))
    found = float(np.mean(ttest_1samp(trials, 0.0, axis=1).pvalue < 0.05))
    assert found == pytest.approx(0.8, abs=0.012)  # four standard errors of the share


def test_one_seed_shows_no_difference_and_equal_ones_any():
    assert detectable_mean([0.3]) is None and detectable_mean([]) is None
    assert detectable_mean([0.3, 0.3, 0.3]) == 0
