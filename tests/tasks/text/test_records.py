"""Simulated patients, the logistic expert, and scores of answers."""

import numpy as np
import pytest

from tasks.records import Records
from tasks.records.expert import COLUMNS, LogisticExpert, draw_effects, fit_expert, standardise
from tests.tasks.replies import reply

TASK = Records(count=300)


def test_the_expert_finds_the_columns_that_matter():
    effects, expert = draw_effects(4, 0), fit_expert(4, 0, 0.3)
    weights = np.array(expert.weights)
    assert (np.sign(weights[effects != 0]) == effects[effects != 0]).all()
    assert np.abs(weights[effects == 0]).max() < 0.2 < 2 < np.abs(weights[effects != 0]).min()
    right = [(expert.risk(np.array(TASK.problem(i)[1])) > 0.5) == TASK.problem(i)[2] for i in range(200)]
    assert np.mean(right) > 0.9


def test_salient_columns_have_the_largest_contributions():
    # |w z|, z = (digit - 4.5) / 2.872: 2 * 1.567 for the first, 1 * 1.567 for the second, 3 * .174 for the third
    expert = LogisticExpert((2.0, -1.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0), 0.0)
    values = np.array([9, 0, 5, 9, 9, 9, 9, 9])
    assert expert.salient(values, 2) == COLUMNS[:2] and expert.salient(values, 3) == COLUMNS[:3]
    total = 2 * 1.566699 + 1.566699 + 3 * 0.174078
    assert expert.risk(values) == pytest.approx(1 / (1 + np.exp(-total)), abs=1e-6)
    assert standardise(np.arange(10)).mean() == pytest.approx(0) and standardise(np.arange(10)).std() == pytest.approx(
        1
    )


@pytest.mark.parametrize(
    ("text", "risk", "attention"),
    [
        ("{a} {b}\n9", 0.95, 1.0),
        ("{b} {a}\n0", 0.05, 1.0),
        ("{a}\n5", 0.55, 0.5),
        ("{a} {c}\n9", 0.95, 1 / 3),
        ("{a} {b} {c}\n9", 0.95, 2 / 3),
        ("{a} {b}", 0, 0),
        ("{a} {b}\n10", 0, 0),
        ("{a} and {b}\n9", 0, 0),
        ("\n9", 0, 0),
    ],
)
def test_scores_by_hand(text, risk, attention):
    index = next(i for i in range(50) if TASK[i].answer == 1)
    a, b = TASK[index].info["salient"]
    c = next(name for name in COLUMNS if name not in (a, b))
    scores = TASK.score(reply(TASK[index], text.format(a=a, b=b, c=c)))
    assert scores["risk"] == pytest.approx(risk) and scores["attention"] == pytest.approx(attention)
    assert scores["exact"] == (risk > 0.5) and scores["format"] == (risk > 0)


def test_the_order_of_the_columns_is_random():
    orders = {TASK.problem(i)[0] for i in range(30)}
    assert len(orders) == 30
    order, values, _ = TASK.problem(0)
    shown = TASK[0].messages[0]["content"].rstrip("?\n").split()
    assert shown[::2] == list(order) and shown[1::2] == [str(values[COLUMNS.index(name)]) for name in order]


@pytest.mark.parametrize("options", [{"informative": 0}, {"salient": 9}, {"noise": -1.0}])
def test_clinics_without_a_signal_are_refused(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        Records(**options)
