import math

import pytest
from matplotlib.figure import Figure

from mmrl.core.types import Episode, Prompt
from mmrl.evaluation.metrics.answers import AnswerEntropy, SolveRates, entropy
from mmrl.evaluation.metrics.pass_at_k import PassAtK, pass_at_k
from mmrl.evaluation.metrics.support import EmpiricalSupport, count_support, support_metrics


def episodes(problems):
    """One list of (answer, right) per problem."""
    return [
        Episode(Prompt(f"t/held_out/{i}"), i, k, scores={"exact": float(right)}, info={"answer": answer})
        for i, samples in enumerate(problems)
        for k, (answer, right) in enumerate(samples)
    ]


def test_pass_at_k_by_hand():
    # 1 - C(n - c, k) / C(n, k): 3 of 10; 1 - 21/252; none; fewer wrong than k; 1 - 1/6
    cases = {(10, 3, 1): 0.3, (10, 3, 5): 0.916667, (10, 0, 5): 0, (10, 6, 5): 1, (4, 2, 2): 0.833333}
    for (n, c, k), value in cases.items():
        assert pass_at_k(n, c, k) == pytest.approx(value, abs=1e-6)


def test_support_by_hand():
    before, after = [0.3, 0.02, 0, 0, 0.2, 0.001], [0.6, 0, 0, 0.02, 0.5, 0]
    counts = count_support(before, after, 0.01)
    assert counts == {"preserved": 2, "lost": 1, "gained": 1, "never": 2}
    # 2/3, 1/3, 2 (2/9) / 1, (1 - 1) / 4
    assert support_metrics(counts) == pytest.approx(
        {"retained": 2 / 3, "discovered": 1 / 3, "balance": 4 / 9, "net": 0}
    )
    nothing = support_metrics({"preserved": 0, "lost": 0, "gained": 0, "never": 3})
    assert all(math.isnan(value) for value in nothing.values())


def test_support_counts_distinct_right_answers():
    # problem 0: 4 and "four" are right; the start finds both, now only 4. problem 1: found now only. 2: never
    start = episodes([[("4", 1), ("four", 1)], [("x", 0), ("y", 0)], [("x", 0), ("x", 0)]])
    now = episodes([[(" 4", 1), ("4", 1)], [("9", 1), ("y", 0)], [("x", 0), ("z", 0)]])
    counts = EmpiricalSupport().counts(start, now)
    assert counts == {"preserved": 1, "lost": 1, "gained": 1, "never": 1}
    assert EmpiricalSupport()(start) == {"found": 2.0, "problems": 3.0}
    # found in one of two samples is less than all of them
    assert EmpiricalSupport(min_fraction=1.0).counts(start, now)["preserved"] == 0
    always = episodes([[("4", 1)] * 10])
    assert EmpiricalSupport(min_fraction=1.0).counts(always, always)["preserved"] == 1


def test_entropy_of_answers_by_hand():
    # 3, 3, 3, 5: -(3/4 log 3/4 + 1/4 log 1/4)
    assert entropy(["3", "3", "3", "5"]) == pytest.approx(0.562335, abs=1e-6)
    assert entropy(["3"] * 4) == 0
    result = AnswerEntropy()(episodes([[("3", 1)] * 3 + [("5", 0)], [("1", 1)] * 4]))
    assert result["mean"] == pytest.approx(0.562335 / 2, abs=1e-6) and result["distinct"] == 1.5
    assert math.isnan(AnswerEntropy()([Episode(Prompt("sim/held_out/0"), 0, 0)])["mean"])


def test_solve_rates():
    start = episodes([[("4", 1), ("5", 0)], [("x", 0), ("y", 0)], [("1", 1), ("1", 1)]])
    now = episodes([[("4", 1), ("4", 1)], [("x", 0), ("y", 0)], [("1", 1), ("2", 0)]])
    result = SolveRates()(start)
    assert [result[name] for name in ("never", "sometimes", "always", "mean")] == pytest.approx(
        [1 / 3, 1 / 3, 1 / 3, 0.5]
    )
    assert SolveRates().against(start, now) == pytest.approx({"risen": 1 / 3, "fallen": 1 / 3})


def test_where_the_curves_meet():
    # start: two problems, each solved by 1 of 4: pass@1 0.25, pass@4 1. now: one always, one never: 0.5 at every k
    start = episodes([[("4", k == 0) for k in range(4)]] * 2)
    now = episodes([[("4", 1)] * 4, [("x", 0)] * 4])
    assert PassAtK(ks=(1, 2, 4)).against(start, now) == {"crossing": 2.0}
    assert math.isnan(PassAtK(ks=(1,)).against(start, now)["crossing"])


def test_rates_are_no_numbers_where_every_episode_was_an_error():
    start = episodes([[("4", 1)]])
    for episode in start:
        episode.ended = "error"
    found = SolveRates()(start)
    assert found.pop("errors") == 1 and all(math.isnan(value) for value in found.values())
    assert all(math.isnan(value) for value in SolveRates().against(start, start).values())


@pytest.mark.parametrize("evaluator", [EmpiricalSupport(), SolveRates(), PassAtK(ks=(1, 2))])
def test_they_draw(evaluator):
    start = episodes([[("4", 1), ("5", 0)], [("x", 0), ("y", 0)]])
    axes = Figure().add_subplot()
    assert evaluator.compares and evaluator.plot(axes, start, start)
    assert axes.has_data() and axes.get_ylabel()
    assert not AnswerEntropy().compares
