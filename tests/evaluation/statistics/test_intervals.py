import pytest

from mmrl.evaluation.statistics.intervals import disjoint, mcnemar, wilson


@pytest.mark.parametrize(
    ("successes", "n", "percent"),
    [(490, 500, (96.4, 98.9)), (95, 100, (88.8, 97.8)), (288, 320, (86.2, 92.8))],  # published tables, one decimal
)
def test_wilson_golden(successes, n, percent):
    assert tuple(round(100 * end, 1) for end in wilson(successes, n)) == percent


def test_wilson_by_hand():
    # 1 of 2 at z = 1.959964: z^2 = 3.841459; midpoint (0.5 + 0.960365) / 2.920729 = 0.5
    # half width 1.959964 * sqrt(0.125 + 0.2400912) / 2.920729 = 0.405469; the interval is 0.5 -+ 0.405469
    lower, upper = wilson(1, 2)
    assert lower == pytest.approx(0.094531, abs=1e-6) and upper == pytest.approx(0.905469, abs=1e-6)


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_wilson_agrees_with_scipy(level):
    stats = pytest.importorskip("scipy.stats")
    for n in (1, 2, 7, 100, 512):
        for successes in {0, 1, n // 2, n - 1, n}:
            expected = stats.binomtest(successes, n).proportion_ci(level, method="wilson")
            assert wilson(successes, n, level) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_edges():
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 10)[0] == 0.0 and wilson(10, 10)[1] == 1.0
    with pytest.raises(ValueError, match="successes must lie between 0 and n, got 3 of 2"):
        wilson(3, 2)
    with pytest.raises(ValueError, match="level must lie between 0 and 1, got 95"):
        wilson(1, 2, 95)


def test_wilson_covers_the_truth_as_often_as_it_says():
    # exact coverage, summed over the binomial; Wilson's is close to nominal away from the ends
    from math import comb

    n, p = 100, 0.3
    covered = sum(
        comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1) if wilson(k, n)[0] <= p <= wilson(k, n)[1]
    )
    assert 0.93 < covered < 0.97


def test_disjoint():
    assert disjoint((0.1, 0.2), (0.3, 0.4)) and disjoint((0.3, 0.4), (0.1, 0.2))
    assert not disjoint((0.1, 0.3), (0.3, 0.4)) and not disjoint((0.1, 0.9), (0.3, 0.4))


def test_mcnemar_by_hand():
    # one solved before only, nine after only: 2 * (C(10,0) + C(10,1)) / 2^10 = 22 / 1024
    before = [True] + [False] * 9 + [True] * 5 + [False] * 5
    after = [False] + [True] * 9 + [True] * 5 + [False] * 5
    assert mcnemar(before, after) == mcnemar(after, before) == 22 / 1024
    assert mcnemar([True, False], [True, False]) == 1.0  # nothing differs
    assert mcnemar([True, False], [False, True]) == 1.0  # as even as can be


def test_mcnemar_agrees_with_scipy_on_many_problems():
    stats = pytest.importorskip("scipy.stats")
    before, after = [True] * 900 + [False] * 1100, [False] * 900 + [True] * 1100
    assert mcnemar(before, after) == pytest.approx(stats.binomtest(900, 2000).pvalue, rel=1e-9)


def test_mcnemar_refuses_different_problems():
    with pytest.raises(ValueError, match="same problems, got 1 and 2"):
        mcnemar([True], [True, False])
