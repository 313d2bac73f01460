"""What fails often is asked often, problem by problem or kind by kind."""

import json
from dataclasses import replace

import numpy as np
import pytest

from mmrl.core.types import Episode, Prompt
from mmrl.curricula.prioritised import Prioritised
from tests.curricula import test_sampler
from tests.curricula.test_sampler import Numbers
from tests.methods.problems.test_mopps import shown

LAWS = [
    Prioritised,
    lambda: Prioritised("kind"),
]


class Kinds(Numbers):
    """Every fourth problem is a push, the others are reaches."""

    def __getitem__(self, index):
        return Prompt(f"numbers/train/{index}", info={"task": "reach" if index % 4 else "push"})


class Plain(Numbers):
    def __getitem__(self, index):
        raise AssertionError("a rate of every problem needs no look at it")


def at(iteration, task):
    return replace(test_sampler.at(iteration, 1), task=task)


def pushes(curriculum, iterations=200, count=4, problems=64):
    asked = np.zeros(2)
    for iteration in range(iterations):
        for i in curriculum.select(count, at(iteration, Kinds(problems))):
            asked[int(i % 4 == 0)] += 1
    return asked[1] / asked.sum()


def test_rates_are_fading_means_and_errors_are_none():
    curriculum = Prioritised(retain=0.5)
    curriculum.observe([shown(0, [1.0, 0.0, 0.0, 0.0]), shown(1, [1.0, 1.0]), shown(2, [0.0], "error")])
    assert curriculum.rates == {0: 0.5 * 0.5 + 0.5 * 0.25, 1: 0.75}
    with pytest.raises(ValueError, match="no success rate"):
        curriculum.observe([shown(5, [2.0])])


def test_hand_computed_shares():
    """Rates 1, 1/2, 0, 1/4 leave failures 0, 1/2, 1, 3/4, shares 0, 2/9, 4/9, 3/9: the first gets `min_weight`."""
    curriculum = Prioritised(min_weight=1e-9)
    curriculum.rates = {0: 1.0, 1: 0.5, 2: 0.0, 3: 0.25}
    asked = np.zeros(4)
    for iteration in range(4000):
        asked[curriculum.select(1, at(iteration, Plain(4)))[0]] += 1
    assert asked[0] == 0
    assert np.allclose(asked / 4000, [0, 2 / 9, 4 / 9, 3 / 9], atol=0.03)  # 4 standard errors are 0.031


def test_kinds_share_a_rate_and_the_solved_one_is_sampled_less():
    curriculum = Prioritised(info_key="task", min_weight=0.1, retain=0.0)
    before = pushes(curriculum)
    assert abs(before - 1 / 4) < 0.06  # nothing known: every problem alike; 4 standard errors of 800 draws
    prompts = [Kinds(64)[i] for i in range(64)]
    curriculum.observe([[Episode(p, p.index, 0, reward=float(p.info["task"] == "reach"))] for p in prompts])
    assert curriculum.rates == {"push": 0.0, "reach": 1.0}
    # 16 pushes of weight 1 beside 48 reaches of weight 0.1, four of them drawn without replacement
    assert abs(pushes(curriculum) - 16 / 20.8) < 0.07


def test_refills_of_one_iteration_repeat_nothing():
    curriculum = Prioritised()
    first, second = curriculum.select(5, at(0, Plain(8))), curriculum.select(3, at(0, Plain(8)))
    assert sorted(first + second) == list(range(8))
    with pytest.raises(ValueError, match=r"data\.num_prompts"):
        curriculum.select(1, at(0, Plain(8)))
    assert len(curriculum.select(8, at(1, Plain(8)))) == 8


def test_it_goes_on_where_a_saved_one_stands():
    whole, first = Prioritised(info_key="task"), Prioritised(info_key="task")
    for curriculum in (whole, first):
        curriculum.select(3, at(0, Kinds(32)))
        curriculum.observe([[Episode(Kinds(32)[0], 0, 0, reward=1.0)]])
    again = Prioritised(info_key="task")
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert again.select(9, at(0, Kinds(32))) == whole.select(9, at(0, Kinds(32)))
    assert again.select(9, at(1, Kinds(32))) == whole.select(9, at(1, Kinds(32)))


def test_every_problem_of_its_own_survives_a_checkpoint():
    curriculum = Prioritised()
    curriculum.observe([shown(3, [1.0])])
    again = Prioritised()
    again.load_state_dict(curriculum.state_dict())
    assert again.rates == {3: pytest.approx(0.6)}


def test_bad_words_are_refused():
    for words in ({"min_weight": 0}, {"retain": 1.0}, {"unknown": 2.0}):
        with pytest.raises(ValueError, match=f"curriculum.{next(iter(words))} must be in"):
            Prioritised(**words)
    with pytest.raises(ValueError, match=r"curriculum\.info_key='colour'.*task"):
        Prioritised(info_key="colour").select(1, at(0, Kinds(8)))
