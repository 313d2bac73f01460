"""Rates of problems over their visits, their variance and slope, by hand."""

import pytest

from mmrl.curricula.history import PromptHistory, slope, variance
from tests.methods.problems.test_mopps import shown


def test_variances_by_hand():
    # mean .6, squares .36, .01, .16, .01, .16: .7 / 5
    assert variance([0, 0.5, 1, 0.5, 1]) == pytest.approx(0.14) == pytest.approx(0.3742**2, abs=1e-4)
    assert variance([1, 1, 1, 1, 1]) == 0
    assert variance([0, 0.1, 0, 0.1, 0]) == pytest.approx(0.0024)
    assert variance([0.5]) == 0


def test_slopes_by_hand():
    # visits -1.5, -.5, .5, 1.5 with squares 5: (-.5625 - .125 + .125 + .1875) / 5
    assert slope([0.375, 0.25, 0.25, 0.125]) == pytest.approx(-0.075)
    assert slope([0.125, 0.25, 0.375, 0.375]) == pytest.approx(0.0875)
    assert slope([0.25, 0.25, 0.25]) == pytest.approx(0, abs=1e-12)
    assert slope([0.3]) == 0


def test_every_visit_is_a_mean_and_errors_are_none():
    history = PromptHistory()
    history.observe([shown(3, [1.0, 0.0]), shown(5, [1.0]), shown(6, [0.0], "error")])
    history.observe([shown(3, [0.0, 0.0, 1.0, 0.0])])
    assert history.rates == {3: [0.5, 0.25], 5: [1.0]}
    again = PromptHistory()
    again.load_state_dict(history.state_dict())
    assert again.rates == history.rates
    again.observe([shown(5, [0.0])])
    assert history.rates[5] == [1.0]  # not shared
    with pytest.raises(ValueError, match="no success rate"):
        history.observe([shown(3, [2.0])])
