"""RLSP's reward of outcome and length by hand."""

import pytest
import torch

from mmrl.core.types import Completion, Episode, Prompt, Turn
from mmrl.methods.rewards.rlsp import SearchReward, count_reasoning, search_reward


def episode(characters, exact, boxed=True, **scores):
    text = "a" * characters + ("\\boxed{7} and \\boxed{8}" if boxed else "")
    done = Completion({}, torch.zeros(1).long(), torch.zeros(1), torch.ones(1).bool(), text)
    return Episode(Prompt("p"), 0, 0, [Turn(done)], {"exact": float(exact), "format": float(boxed), **scores})


def reward(part, one):
    one.scores |= part.scores([one])[0]
    return part([one])[0]


@pytest.mark.parametrize(
    ("characters", "exact", "boxed", "expected"),
    [
        (8000, 1, True, 0.5),  # 2000 tokens: 1 - 1000 / 2000
        (16000, 0, True, -0.25),  # 4000: 0 - 1/4
        (4000, 0, False, -1.5),  # 1000: -1/2 - 1
        (400, 1, True, -9.0),  # 100: 1 - 10
    ],
)
def test_the_released_reward_by_hand(characters, exact, boxed, expected):
    one = episode(characters, exact, boxed)
    assert reward(SearchReward({"search": 1.0}), one) == pytest.approx(expected)
    assert reward(SearchReward({"search": 1.0}, lowest=-1.0), one) == pytest.approx(max(expected, -1.0))


def test_a_judge_has_a_fifth():
    one = episode(8000, 1, judge=0.9)  # .8 * .5 + .2 * .9
    assert reward(SearchReward({"search": 0.8, "judge": 0.2}), one) == pytest.approx(0.58)


def test_without_a_constant_the_outcome_is_left():
    part = SearchReward({"search": 1.0}, length_coef=0.0)
    assert [reward(part, episode(0, *case)) for case in ((1, True), (0, True), (0, False))] == [1.0, 0.0, -0.5]


def test_the_reasoning_ends_where_the_answer_begins():
    assert count_reasoning("12345678\\boxed{1}\\boxed{2}") == 2
    assert count_reasoning("12345678") == 2  # no answer: all of it
    assert count_reasoning("123\n5678\n9\n", marker=None) == 2.25  # nine characters before the last line
    assert count_reasoning("9", marker=None) == 0


def test_refusals():
    assert search_reward(1.0, 0.0, 1.0, lowest=-2.0) == -2.0
    with pytest.raises(ValueError, match="lowest"):
        search_reward(1.0, 0.0, 1.0)
    for wrong in ({"length_coef": -1.0}, {"marker": ""}):
        with pytest.raises(ValueError, match="reward"):
            SearchReward({}, **wrong)
    one = episode(4, 1)
    del one.scores["format"]
    with pytest.raises(KeyError, match="format"):
        SearchReward({}).scores([one])
