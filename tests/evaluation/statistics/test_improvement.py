"""Paired tests of improvement: closed forms, the promised rate of false winners, and power where there is a winner."""

from math import comb, sqrt
from statistics import NormalDist

import numpy as np
import pytest

from mmrl.core.types import Episode, Prompt
from mmrl.evaluation.metrics.means import MeanReward
from mmrl.evaluation.metrics.success_rate import SuccessRate
from mmrl.evaluation.statistics.improvement import BestValues, compare_problems, measure_problems

EVALUATIONS, PROBLEMS, RUNS, LEVEL = 8, 60, 400, 0.9


def episodes(rows: dict[str, list[float]]) -> list[Episode]:
    return [
        Episode(Prompt(key), number, i, ended="stop", scores={"exact": value}, reward=value)
        for number, (key, values) in enumerate(rows.items())
        for i, value in enumerate(values)
    ]


def named(values: np.ndarray) -> dict[str, float]:
    return {str(i): float(value) for i, value in enumerate(values)}


def test_the_p_value_of_successes_is_the_binomial_tail():
    before = dict.fromkeys("abcdefghij", 0.0) | {"i": 1.0, "j": 1.0}
    after = dict.fromkeys("abcdefghij", 0.0) | dict.fromkeys("abcdef", 1.0) | {"i": 1.0}
    result = compare_problems(before, after)  # 6 won, 1 lost
    assert result.pairs == 10 and result.difference == pytest.approx(0.5)
    assert result.p_value == pytest.approx((comb(7, 6) + 1) / 2**7)
    assert compare_problems(after, before).p_value == pytest.approx(sum(comb(7, k) for k in range(1, 8)) / 2**7)
    assert compare_problems(before, after, "min").p_value == compare_problems(after, before).p_value


def test_the_p_value_of_other_values_is_that_of_students_test():
    changes = np.array([0.1, 0.4, -0.2, 0.3, 0.25])
    t = changes.mean() / (changes.std(ddof=1) / sqrt(5))
    draws = np.random.default_rng(0).standard_t(4, 400_000)
    result = compare_problems(named(np.zeros(5)), named(changes))
    assert result.p_value == pytest.approx((draws > t).mean(), abs=0.003)


def test_problems_are_compared_that_both_have():
    result = compare_problems({"a": 0.0, "b": 1.0, "c": 1.0}, {"b": 1.0, "c": 1.0, "d": 1.0})
    assert (result.pairs, result.difference, result.p_value) == (2, 0.0, 1.0)
    assert compare_problems({"a": 0.0}, {"b": 1.0}).pairs == 0


def test_values_of_problems_are_means_of_their_samples_and_others_are_refused():
    rows = {"a": [1.0, 0.0], "b": [1.0, 1.0], "c": [0.0, 0.0]}
    assert measure_problems(SuccessRate(), "mean", episodes(rows)) == {"a": 0.5, "b": 1.0, "c": 0.0}
    assert measure_problems(MeanReward(), "mean", episodes(rows)) == {"a": 0.5, "b": 1.0, "c": 0.0}
    with pytest.raises(ValueError, match="problems cannot be compared in pairs"):
        measure_problems(SuccessRate(), "n", episodes(rows))


@pytest.mark.parametrize("samples", [1, 4])
def test_runs_without_progress_have_false_winners_at_the_promised_rate_and_not_by_the_highest_mean(samples):
    generator = np.random.default_rng(samples)
    replaced, highest = 0, 0
    for _ in range(RUNS):
        difficulty = generator.random(PROBLEMS)  # the same for every policy of the run: none is better
        measured = generator.binomial(samples, difficulty, (EVALUATIONS + 1, PROBLEMS)) / samples
        best = BestValues()
        for iteration, values in enumerate(measured):
            best.challenge(named(values), iteration, (1 - LEVEL) / EVALUATIONS)
        replaced += best.iteration > 0
        highest += measured.mean(1).argmax() > 0
    # 1 - LEVEL and three standard errors; a rule that took every higher mean would be wrong in most runs
    assert replaced / RUNS <= 1 - LEVEL + 3 * sqrt(LEVEL * (1 - LEVEL) / RUNS)
    assert replaced > 0 and highest / RUNS > 0.7


def test_one_comparison_at_level_alpha_is_false_with_this_probability():
    generator = np.random.default_rng(5)
    wrong = sum(
        compare_problems(named(one), named(other)).p_value <= 0.1 for one, other in generator.normal(size=(2000, 2, 30))
    )
    assert wrong / 2000 == pytest.approx(0.1, abs=3 * sqrt(0.09 / 2000))


def test_the_detectable_difference_is_found_with_80_percent_power():
    generator, alpha = np.random.default_rng(3), 0.01
    expected = (NormalDist().inv_cdf(1 - alpha) + NormalDist().inv_cdf(0.8)) * sqrt(2) / sqrt(200)
    won, sizes = 0, []
    for _ in range(500):
        before, after = generator.normal(size=200), generator.normal(size=200) + expected
        result = compare_problems(named(before), named(after))
        won += result.p_value <= alpha
        sizes.append(result.detectable(alpha))
    assert np.mean(sizes) == pytest.approx(expected, rel=0.02)
    assert won / 500 == pytest.approx(0.8, abs=0.06)


def test_slow_progress_adds_up_until_it_is_a_winner():
    generator, best = np.random.default_rng(0), BestValues()
    for iteration in range(21):
        values = (generator.random(400) < 0.3 + 0.02 * iteration).astype(float)
        best.challenge(named(values), iteration, 0.05 / 20)
    assert best.iteration >= 14  # 0.02 alone is within the noise of 400 problems
