"""MBTL: the expected gain by hand and by brute force, the Gaussian process, and which levels are added."""

import numpy as np
import pytest

from mmrl.methods.control.mbtl import BETA, MBTL, acquisition, predict_returns, transferred_returns
from tests.curricula.test_levels import ended, levels, on_levels

LAWS = [lambda: MBTL(stage=8, points=4)]

PLACES = np.arange(5.0)
DISTANCES = np.abs(PLACES[:, None] - PLACES[None])
BEST = np.array([0.2, 0.5, 0.8, 0.5, 0.2])


def test_the_expected_gain_by_hand():
    mean, deviation = np.array([0.7, 0.8, 0.8, 0.8, 0.9]), np.array([0.1, 0.05, 0.0, 0.05, 0.1])
    gains = acquisition(mean, deviation, BEST, DISTANCES, 0.1)
    # at 0: .8, .7, .6, .5, .4 less V is .6, .2, -, 0, .2, whose mean is .2
    assert gains.tolist() == pytest.approx([0.20, 0.28, 0.24, 0.28, 0.36])
    assert (acquisition(mean, 0 * deviation, np.ones(5), DISTANCES, 0.1) == 0).all()


def test_what_is_trained_is_worth_less_farther_away():
    # J = .8 at 1 and .6 at 4, slope .1: at 0 .7 or .2, at 3 .6 or .5, at 4 .5 or .6
    assert transferred_returns(np.array([0.8, 0.6]), DISTANCES[[1, 4]], 0.1).tolist() == pytest.approx(
        [0.7, 0.8, 0.7, 0.6, 0.6]
    )


def test_gains_are_those_of_loops():
    rng = np.random.default_rng(0)
    grid = rng.random((12, 2))
    mean, bonus, best = rng.random(12), 0.1 * rng.random(12), rng.random(12)
    distances = np.array([[np.hypot(*(a - b)) for b in grid] for a in grid])
    expected = [
        sum(max(mean[i] + bonus[i] - 0.3 * distances[i, j] - best[j], 0.0) for j in range(12)) / 12 for i in range(12)
    ]
    assert acquisition(mean, bonus, best, distances, 0.3).tolist() == pytest.approx(expected)


def test_the_weight_of_the_deviation():
    assert [BETA["constant"](k) for k in (1, 5)] == [1, 1]
    assert BETA["decreasing"](3) == 0.25
    assert BETA["increasing"](2) == pytest.approx(np.sqrt(np.log(3)))


def test_the_process_follows_smooth_returns_and_doubts_what_is_far():
    grid = np.linspace(0, 1, 21)[:, None]
    truth = np.sin(3 * grid[:, 0])
    trained = np.arange(0, 13, 2)
    mean, deviation = predict_returns(grid[trained], truth[trained], grid, 0)
    assert np.abs(mean - truth)[:13].max() < 0.1  # noise of .1 is assumed
    assert deviation[20] > 2 * deviation[trained].max()


def test_the_first_level_is_in_the_middle_and_each_stage_adds_one():
    def returns(steps, gift):
        """Higher where steps are many: the first level, 3 steps, has half of the range."""
        return (steps - 1) / 4

    teacher, counts = MBTL(stage=20, points=5, window=10), []
    assert np.abs(levels(teacher, 5, on_levels()) - [3.0, 0.0]).max() < 1e-3
    for iteration in range(6):
        drawn = levels(teacher, 20, on_levels(iteration))
        teacher.observe([[ended(*level, **{"return": returns(*level)})] for level in drawn])
        counts.append(len(teacher.chosen))
        # episodes are drawn from all chosen levels
        assert {tuple(level) for level in drawn.round(3)} <= {
            (round(1 + 4 * x, 3), round(2 * y - 1, 3)) for x, y in teacher._grid[teacher.chosen]
        }
    assert counts == [2, 3, 4, 5, 6, 7] and len(set(teacher.chosen)) == 7
    assert all(len(values) <= 10 for values in teacher.returns)


def test_no_level_is_added_where_all_are_chosen():
    teacher = MBTL(stage=10, points=2)
    for iteration in range(6):
        drawn = levels(teacher, 10, on_levels(iteration))
        teacher.observe([[ended(*level, **{"return": float(level.sum())})] for level in drawn])
    assert sorted(teacher.chosen) == [0, 1, 2, 3]


def test_a_resumed_teacher_goes_on_alike():
    one, other = (MBTL(stage=15, points=4) for _ in range(2))
    for iteration in range(3):
        drawn = levels(one, 15, on_levels(iteration))
        one.observe([[ended(*level, **{"return": float(level.sum())})] for level in drawn])
    other.load_state_dict(one.state_dict())
    drawn = levels(one, 15, on_levels(3))
    assert drawn.tolist() == levels(other, 15, on_levels(3)).tolist()
    for teacher in (one, other):
        teacher.observe([[ended(*level, **{"return": float(level.sum())})] for level in drawn])
    assert one.chosen == other.chosen and len(one.chosen) == 5 and one.returns == other.returns


def test_bad_settings_are_refused():
    for wrong in ({"stage": 0}, {"points": 1}, {"slope": 0.0}, {"beta": "never"}, {"window": 0}):
        with pytest.raises(ValueError, match=rf"curriculum\b.*{next(iter(wrong))}"):
            MBTL(**wrong)
    with pytest.raises(ValueError, match=r"points=101 gives 101\^2 levels, more than 2000"):
        levels(MBTL(points=101), 1)
