"""Weak problems, the shares of their kinds, and what is selected, by hand."""

from collections import Counter

import numpy as np
import pytest
from hydra.utils import instantiate

from mmrl.methods.problems.sws import WeakKinds, failure_shares, is_weak
from tests.composed_words import compose_words
from tests.curricula.test_prioritised import Kinds, at
from tests.methods.problems.test_mopps import shown

LAWS = [lambda: WeakKinds("kind", 2, pool=8)]


def test_weak_problems_by_hand():
    assert is_weak([0.375, 0.25, 0.25, 0.125])  # slope -.075
    assert not is_weak([0.125, 0.25, 0.375, 0.375])  # slope .0875
    assert not is_weak([0.25, 0.25, 0.25])
    assert not is_weak([0.5, 0.25, 0.0])  # it was half solved once
    assert is_weak([0.5, 0.25], max_rate=0.6)


def test_shares_by_hand():
    shares = failure_shares({"a": 0.0785, "b": 0.1427, "c": 0.1509})
    assert list(shares.values()) == pytest.approx([0.2109, 0.3835, 0.4056], abs=1e-4)
    assert failure_shares({"a": 0.0, "b": 0.0}) == {"a": 0.5, "b": 0.5}


def trained(pool=16):
    """Pushes are problems 0, 4, 8, 12 of the pool: two of four are weak. Of twelve reaches one is: 6 to 1."""
    curriculum = WeakKinds("task", explore_iterations=2, pool=pool)
    for visit in range(2):
        rates = {index: 0.4 - 0.1 * visit * (index in (0, 4, 1)) for index in range(16)}
        curriculum.observe([shown(index, [rate]) for index, rate in rates.items()])
    return curriculum


def test_old_problems_and_new_ones_by_the_weakness_of_their_kinds():
    curriculum, task = trained(), Kinds(400)
    assert curriculum.shares(task) == pytest.approx({"push": 6 / 7, "reach": 1 / 7})
    asked = np.array([index for i in range(400) for index in curriculum.select(4, at(2 + i, task))])
    old = asked < 16
    assert old.mean() == pytest.approx(0.5, abs=0.05)  # a little less, as no problem is drawn twice
    assert (asked[old] % 4 == 0).mean() == pytest.approx(1 / 4, abs=0.05)  # of the pool each as often
    assert (asked[~old] % 4 == 0).mean() == pytest.approx(6 / 7, abs=0.05)
    with pytest.raises(ValueError, match="no new problem of a weak kind"):
        trained().select(4, at(2, Kinds(16)))


def test_weights_of_problems_by_hand():
    """The pool of 16 shares one half: 1/32 each. The shares of the kinds are 6/7 and 1/7.

    Problems 16 and 20 are new pushes, 17, 18 and 19 new reaches: 6/14 by 2, and 1/14 by 3. Where 16 is the only new
    one, it has the other half.
    """
    weights = trained()._weights(at(2, Kinds(21)))
    assert weights == pytest.approx([1 / 32] * 16 + [3 / 14, 1 / 42, 1 / 42, 1 / 42, 3 / 14])
    assert trained()._weights(at(2, Kinds(17))) == pytest.approx([1 / 32] * 16 + [1 / 2])


def test_the_second_part_of_the_recipe_is_on_the_original_problems_too():
    """Products are 9 of 10 times wrong and get worse, sums and differences are learned."""
    data = compose_words(("recipe=sws",)).data
    curriculum, task = instantiate(data.curriculum), instantiate(data.task, _convert_="all")
    kinds = [task[index].info["operation"] for index in range(len(task))]
    visits, second = Counter(), []
    for iteration in range(data.curriculum.explore_iterations + 20):
        selection = curriculum.select(data.num_prompts, at(iteration, task))
        if iteration < data.curriculum.explore_iterations:
            rates = [0.4 / (1 + visits[index]) if kinds[index] == "*" else 0.9 for index in selection]
            curriculum.observe([shown(index, [rate]) for index, rate in zip(selection, rates)])
            visits.update(selection)
        else:
            second += selection
    drawn = Counter((index < data.curriculum.pool, kinds[index]) for index in second)
    assert set(drawn) == {(True, "+"), (True, "-"), (True, "*"), (False, "*")}
    old = sum(count for (original, _), count in drawn.items() if original)
    assert old / len(second) == pytest.approx(0.5, abs=0.06)


def test_shares_stay_as_they_are_once_problems_are_drawn_by_them():
    """A problem that is drawn once afterwards has no slope, so that it would count as one that is not weak."""
    curriculum, task = trained(), Kinds(400)
    weights = curriculum.select(4, at(2, task)) and dict(curriculum.state_dict()["shares"])
    curriculum.observe([shown(index, [0.3]) for index in range(16, 216, 4)])  # pushes
    assert curriculum.shares(task) != pytest.approx(weights)  # what they would be now
    curriculum.select(4, at(3, task))
    assert dict(curriculum.state_dict()["shares"]) == weights == pytest.approx({"push": 6 / 7, "reach": 1 / 7})


def test_the_first_part_is_on_the_pool_and_nothing_is_drawn_twice():
    curriculum, task = WeakKinds("task", explore_iterations=2, pool=16), Kinds(400)
    assert sorted(curriculum.select(16, at(0, task))) == list(range(16))
    with pytest.raises(ValueError, match=r"1 further problems.*0 are left"):
        curriculum.select(1, at(0, task))
    first = curriculum.select(8, at(1, task))
    assert not set(first) & set(curriculum.select(8, at(1, task)))


def test_it_is_saved():
    curriculum, task = trained(), Kinds(400)
    curriculum.select(4, at(5, task))
    again = WeakKinds("task", explore_iterations=2, pool=16)
    again.load_state_dict(curriculum.state_dict())
    assert again.select(4, at(5, task)) == curriculum.select(4, at(5, task))


def test_refusals():
    with pytest.raises(ValueError, match=r"info_key='kind' is not in the info"):
        WeakKinds("kind", 1, 1).shares(Kinds(4))
    for name, wrong in (("explore_iterations", (0, 1)), ("pool", (1, 0))):
        with pytest.raises(ValueError, match=f"{name} must be at least 1"):
            WeakKinds("task", *wrong)
