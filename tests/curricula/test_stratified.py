"""So many problems of each kind, the first ones of the task."""

import pytest

from mmrl.curricula.stratified import StratifiedSubset
from tests.curricula.test_prioritised import Kinds, at

LAWS = [lambda: StratifiedSubset("kind", {"a": 8, "b": 8})]


def test_the_first_of_each_kind_round_and_round():
    """Every fourth problem, from the first on, is a push: 0, 4, 8; reaches are 1 and 2."""
    curriculum, task = StratifiedSubset("task", {"push": 3, "reach": 2}), Kinds(64)
    assert curriculum.select(5, at(0, task)) == [0, 1, 2, 4, 8]
    assert curriculum.select(3, at(1, task)) == [0, 1, 2]
    assert curriculum.select(4, at(2, task)) == [4, 8, 0, 1]


def test_kinds_that_are_not_named_take_no_part():
    assert StratifiedSubset("task", {"push": 2}).select(4, at(0, Kinds(64))) == [0, 4, 0, 4]


def test_it_goes_on_where_a_saved_one_stands():
    whole, again, task = StratifiedSubset("task", {"push": 3}), StratifiedSubset("task", {"push": 3}), Kinds(64)
    whole.select(2, at(0, task))
    again.load_state_dict(whole.state_dict())
    assert again.select(3, at(1, task)) == whole.select(3, at(1, task)) == [8, 0, 4]


def test_what_the_task_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"\{'push': 1\} more problems than task 'numbers' \(train\).*push.*reach"):
        StratifiedSubset("task", {"push": 17, "reach": 1}).select(1, at(0, Kinds(64)))
    with pytest.raises(ValueError, match=r"'stack': 2.*push.*reach"):
        StratifiedSubset("task", {"stack": 2}).select(1, at(0, Kinds(64)))
    with pytest.raises(ValueError, match=r"info_key='task' are \['None'\]"):
        StratifiedSubset("task", {"push": 2}).select(1, at(0, Plainly(8)))
    for counts in ({}, {"push": 0}):
        with pytest.raises(ValueError, match=r"curriculum\.counts must name"):
            StratifiedSubset("task", counts)


class Plainly(Kinds):
    """Problems that do not say their kind."""

    def __getitem__(self, index):
        prompt = super().__getitem__(index)
        return type(prompt)(prompt.key)
