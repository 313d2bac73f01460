"""MedVLThinker: the filter by pass rate, by hand."""

import pytest

from mmrl.methods.problems.medvlthinker import DropMeasuring, MeasuredPassRates, filter_pass_rates
from tests.composed_words import compose_words
from tests.curricula.test_prioritised import Kinds, at
from tests.methods.problems.test_mopps import shown

LAWS = [
    lambda: MeasuredPassRates(2),
    lambda: MeasuredPassRates(2, easy_first=True),
    lambda: DropMeasuring(2),
]


def test_pass_counts_by_hand():
    counts = [0, 1, 8, 15, 16]
    rates = {index: count / 16 for index, count in enumerate(counts)}
    assert [counts[i] for i in filter_pass_rates(rates)] == [1, 8, 15]
    assert [counts[i] for i in filter_pass_rates(rates, easy_first=True)] == [15, 8, 1]
    assert [counts[i] for i in filter_pass_rates(rates, 1 / 16, 15 / 16)] == [8]  # a band in the middle


def measured(**options):
    """A curriculum that has measured five problems, the last one with an error among its samples."""
    curriculum = MeasuredPassRates(1, **options)
    assert sorted(curriculum.select(5, at(0, Kinds(5)))) == [0, 1, 2, 3, 4]
    rewards = [[0.0] * 4, [1.0, 0.0, 0.0, 0.0], [1.0] * 4, [1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0]]
    curriculum.observe([shown(index, group) for index, group in enumerate(rewards)])
    return curriculum


def test_problems_that_are_solved_sometimes_are_repeated():
    assert measured().select(4, at(1, Kinds(5))) == [1, 3, 4, 1]
    assert measured(easy_first=True).select(4, at(1, Kinds(5))) == [3, 4, 1, 3]  # .75, .5 and .25
    curriculum = measured(min_rate=0.25, max_rate=0.75)
    assert curriculum.select(2, at(1, Kinds(5))) == [4, 4]
    curriculum.observe([shown(4, [1.0])])  # the filter stays that of the start
    assert curriculum.select(2, at(2, Kinds(5))) == [4, 4]


def test_the_rate_is_the_mean_of_the_visits():
    curriculum = MeasuredPassRates(2, min_rate=0.4, max_rate=0.6)
    for visit in range(2):
        curriculum.select(2, at(visit, Kinds(2)))
        curriculum.observe([shown(0, [float(visit)]), shown(1, [1.0])])
    assert curriculum.select(2, at(2, Kinds(2))) == [0, 0]  # (0 + 1) / 2, and 1


def test_state_is_saved():
    for iteration in (0, 1):
        source = measured()
        if iteration:
            source.select(2, at(1, Kinds(5)))
        again = MeasuredPassRates(1)
        again.load_state_dict(source.state_dict())
        assert again.select(3, at(1 + iteration, Kinds(5))) == source.select(3, at(1 + iteration, Kinds(5)))


def test_nothing_is_learned_while_measuring():
    episodes = shown(0, [1.0, 0.0])
    part = DropMeasuring(2)
    assert [part(episodes, at(i, Kinds(5))) for i in range(3)] == [[], [], episodes]
    data = compose_words(("recipe=medvlthinker",)).data
    assert data.transforms.measuring.iterations == data.curriculum.measure_iterations < data.max_empty_iterations
    assert dict(data.group_size["values"]) == {0: 16, data.curriculum.measure_iterations: 8}


def test_refusals():
    with pytest.raises(ValueError, match="measure_iterations must be at least 1"):
        MeasuredPassRates(0)
    with pytest.raises(ValueError, match=r"min_rate must be in \[0, 0\.5\), got 0\.5"):
        MeasuredPassRates(1, min_rate=0.5, max_rate=0.5)
    curriculum = MeasuredPassRates(1)
    curriculum.select(1, at(0, Kinds(1)))
    curriculum.observe([shown(0, [1.0, 1.0])])
    with pytest.raises(ValueError, match="none of 1 measured problems"):
        curriculum.select(1, at(1, Kinds(1)))
