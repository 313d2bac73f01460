"""The quadratic surrogate of pilot runs by hand, and tasks drawn by their weights."""

from collections import Counter

import numpy as np
import pytest

from mmrl.methods.problems.modomodo import WeightedTasks, find_best_mixture, fit_surrogate, list_mixtures, predict_score
from tests.curricula.test_prioritised import Kinds, at

LAWS = [lambda: WeightedTasks({"a": 0.25, "b": 0.75}, "kind")]

PILOTS = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5], [1 / 3] * 3])
SCORES = np.array([0.40, 0.50, 0.30, 0.60, 0.45, 0.42, 0.55])


def test_without_the_uniform_pilot_the_fit_is_exact_by_hand():
    # b is the score of each task alone
    # c_12 = 4 (.60 - .45) = .6, c_13 = 4 (.45 - .35) = .4, c_23 = 4 (.42 - .40) = .08
    assert fit_surrogate(PILOTS[:6], SCORES[:6]) == pytest.approx([0.4, 0.5, 0.3, 0.6, 0.4, 0.08])


def test_seven_pilots_by_hand():
    # the exact fit of six predicts .52 for the uniform one, .03 too little: least squares spreads the residual
    # along the one direction r with X' r = 0, r = (1, 1, 1, -4, -4, -4, 9) / sqrt(132): .27 / 132 = .002045 times it
    out = fit_surrogate(PILOTS, SCORES)
    assert out == pytest.approx([0.397955, 0.497955, 0.297955, 0.640909, 0.440909, 0.120909], abs=1e-6)
    residual = SCORES - predict_score(out, PILOTS)
    assert residual == pytest.approx(0.27 / 132 * np.array([1, 1, 1, -4, -4, -4, 9]))
    mixture, score = find_best_mixture(out, 3)
    # .4 * .397955 + .6 * .497955 + .24 * .640909
    assert mixture == pytest.approx((0.4, 0.6, 0.0)) and score == pytest.approx(0.611773, abs=1e-6)


def test_the_grid_is_the_simplex():
    grid = list(list_mixtures(3, 4))
    assert len(grid) == len(set(grid)) == 15 and all(sum(mixture) == pytest.approx(1) for mixture in grid)
    assert list(list_mixtures(1, 4)) == [(1.0,)]


def test_too_few_pilots_are_refused():
    with pytest.raises(ValueError, match="5 pilot mixtures do not determine 6 coefficients"):
        fit_surrogate(PILOTS[:5], SCORES[:5])
    assert np.isfinite(fit_surrogate(PILOTS[:5], SCORES[:5], ridge=1e-4)).all()
    # one task, two pilots of it: (.4 + .6) / (2 + ridge)
    assert fit_surrogate(np.ones((2, 1)), np.array([0.4, 0.6]), ridge=2.0) == pytest.approx([0.25])


def test_tasks_are_drawn_by_their_weights():
    curriculum, task = WeightedTasks({"push": 0.75, "reach": 0.25}), Kinds(64)  # 16 pushes, 48 reaches
    chosen = [index for i in range(50) for index in curriculum.select(40, at(i, task))]
    pushes = [index for index in chosen if index % 4 == 0]
    assert abs(len(pushes) / 2000 - 0.75) < 4 * (0.75 * 0.25 / 2000) ** 0.5
    assert len(set(pushes[:16])) == 16  # a permutation
    count = Counter(pushes)
    assert max(count.values()) - min(count.values()) <= 1
    alone = WeightedTasks({"push": 1.0, "reach": 0.0}).select(8, at(0, task))
    assert all(index % 4 == 0 for index in alone)


def test_weights_that_are_rounded_are_scaled():
    assert len(WeightedTasks({"push": 0.7500004, "reach": 0.25}).select(8, at(0, Kinds(64)))) == 8


def test_it_goes_on_where_a_saved_one_stands():
    whole, again, task = (
        WeightedTasks({"push": 0.5, "reach": 0.5}),
        WeightedTasks({"push": 0.5, "reach": 0.5}),
        Kinds(64),
    )
    whole.select(10, at(0, task))
    again.load_state_dict(whole.state_dict())
    assert again.select(10, at(1, task)) == whole.select(10, at(1, task))
    for weights in ({}, {"push": 0.5}, {"push": 1.5, "reach": -0.5}):
        with pytest.raises(ValueError, match=r"curriculum\.weights must be"):
            WeightedTasks(weights)
    with pytest.raises(ValueError, match=r"names \['stack'\]"):
        WeightedTasks({"stack": 1.0}).select(1, at(0, task))
