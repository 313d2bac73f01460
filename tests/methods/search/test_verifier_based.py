"""Verification against cloning: the spread of returns by hand, and the planted traces by brute force."""

from itertools import combinations
from math import comb, sqrt

import pytest

from mmrl.core.types import Episode, Prompt
from mmrl.evaluation.metrics.best_of_n import best_of_n
from mmrl.methods.search.verifier_based import ReturnSpread, VerifiedReturn, measure_spread
from tasks.planted.task import Planted, find_end, plant


def test_the_spread_by_hand():
    # mean 1/4, variance (3 / 16 + 9 / 16) / 4 = 3/16, sigma .433013, threshold .683013, one of four above it
    variance, share = measure_spread([0, 0, 0, 1], 1.0)
    assert sqrt(variance) == pytest.approx(0.433013, abs=1e-6) and share == 0.25
    # four deviations would be 1.982: no return is that high
    assert measure_spread([0, 0, 0, 1], 16.0)[1] == 0
    assert measure_spread([0.3, 0.3, 0.3], 1.0) == (0, 1)
    assert measure_spread([0, 1], 1.0) == (0.25, 0.5)  # one return is at the threshold .5 + .5 itself
    with pytest.raises(ValueError, match="no returns"):
        measure_spread([], 1.0)


def test_the_best_of_four_with_a_quarter_right():
    # 1 - .75^4 = .683594, with replacement; of 4,000 answers of which 1,000 are right, without, it is close
    scores = [float(i % 4 == 0) for i in range(4000)]
    assert best_of_n(scores, scores, 4) == pytest.approx(1 - comb(3000, 4) / comb(4000, 4))
    assert best_of_n(scores, scores, 4) == pytest.approx(0.683594, abs=3e-4)


def test_problems_are_averaged_after_their_variance():
    rows = {0: (0.0, 0.0, 0.0, 1.0), 1: (0.5, 0.5, 0.5, 0.5)}
    episodes = [
        Episode(Prompt(f"p/{group}"), group, i, scores={"earned": value})
        for group, values in rows.items()
        for i, value in enumerate(values)
    ]
    metrics = ReturnSpread()(episodes)
    assert (metrics["mean"], metrics["n"]) == (0.375, 2)
    assert metrics["heterogeneity"] == pytest.approx(sqrt(3 / 32))  # the mean of 3/16 and 0
    assert metrics["anti_concentration"] == 0.625  # the mean of 1/4 and 1


def test_the_verifiers_choice_of_each_problem():
    """The first problem's best by the verifier earns 1/4, the second one's two best share 1/2 and 1."""
    rows = {0: ((0.25, 3.0), (1.0, -1.0)), 1: ((0.5, 2.0), (1.0, 2.0), (0.0, 1.0))}
    episodes = [
        Episode(Prompt(f"p/{group}"), group, i, scores={"earned": gold, "reward_model": score})
        for group, values in rows.items()
        for i, (gold, score) in enumerate(values)
    ]
    assert VerifiedReturn()(episodes) == {"mean": (0.25 + 0.75) / 2, "n": 2, "errors": 0}


@pytest.mark.parametrize("planted", ["a", "ab", "aa", "aba"])
def test_the_end_of_a_search_against_all_choices_of_places(planted):
    for number in range(3**6):
        trace = "".join("abc"[number // 3**i % 3] for i in range(6))
        places = [
            chosen
            for chosen in combinations(range(6), len(planted))
            if all(trace[p] == c for p, c in zip(chosen, planted))
        ]
        assert find_end(trace, planted) == (min(chosen[-1] for chosen in places) + 1 if places else None)


def test_letters_and_what_a_trace_earns():
    assert plant("0369") == "baji"  # 3 d + 1 is 1, 10, 19, 28: letters 1, 0, 9, 8
    task, prompt = Planted(digits=1, horizon=5), Prompt("planted/0", (), answer=plant("0"))
    # right from place 3, 1, never, and only beyond the horizon: 3, 5, 0 and 0 of 5 letters
    traces = {"aabaa": 0.6, "baaaa": 1.0, "aaaaa": 0.0, "aaaaab": 0.0, " aab\n": 0.6}
    for trace, earned in traces.items():
        assert task.verify(trace, prompt) == {"found": float(earned > 0), "earned": earned}


def test_efforts_change_what_the_examples_earn():
    means = []
    for effort in (0.1, 0.5, 1.0):
        task = Planted(digits=2, efforts=[effort])
        scores = [task.verify(task.demonstrate(i), task[i]) for i in range(200)]
        assert all(len(task.demonstrate(i)) == 12 for i in range(20))
        means.append(sum(score["earned"] for score in scores) / 200)
    assert means == sorted(means) and means[2] == pytest.approx(11 / 12)  # two letters, found at once


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"efforts": [0.0]}, "efforts"), ({"efforts": []}, "efforts"), ({"horizon": 2}, "horizon")],
)
def test_what_no_trace_can_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Planted(**arguments)
