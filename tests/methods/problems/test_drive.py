"""DRIVE: the hardest problems by hand, and sets that shrink from phase to phase."""

import pytest
from hydra.utils import instantiate

from mmrl.methods.problems.drive import HardestPhases, select_hardest
from tests.composed_words import compose_words
from tests.curricula.test_prioritised import Kinds, at
from tests.methods.problems.test_mopps import shown

LAWS = [lambda: HardestPhases({2: 0.5, 4: 0.25})]


def test_the_hardest_by_hand():
    rates = {0: 0.9, 1: 0.1, 2: 0.5, 3: 0.0}
    assert select_hardest(rates, 0.5) == [3, 1] == select_hardest(rates, 2)
    assert select_hardest(rates, 0.6) == [3, 1, 2]  # 2.4, rounded up
    assert select_hardest(dict.fromkeys([5, 2, 8], 0.5), 0.5) == [5, 2]  # equal rates keep their order; 1.5 rounded up
    assert len(select_hardest(dict.fromkeys(range(100), 0.0), 0.07)) == 7  # 0.07 * 100 is 7.000000000000001
    assert [len(select_hardest(dict.fromkeys(range(175), 0.0), keep)) for keep in (72, 50, 25)] == [72, 50, 25]


def visited(phases, rates):
    """A curriculum that has seen each problem once, with these rates."""
    curriculum = HardestPhases(phases)
    assert sorted(curriculum.select(len(rates), at(0, Kinds(len(rates))))) == list(range(len(rates)))
    curriculum.observe([shown(index, [rate]) for index, rate in enumerate(rates)])
    return curriculum


def test_phases_shrink_and_are_ranked_by_the_last_visit():
    curriculum = visited({1: 4, 3: 0.5}, [1.0, 0.2, 0.8, 0.4, 0.0, 0.6])
    assert curriculum.select(3, at(1, Kinds(6))) == [4, 1, 3]
    curriculum.observe([shown(4, [1.0, 0.8]), shown(0, [0.0])])  # 4 is now solved, at .9; 0 was left out before
    assert curriculum.select(3, at(2, Kinds(6))) == [5, 4, 1]  # it goes on in the set of four
    assert curriculum.select(3, at(3, Kinds(6))) == [1, 3, 1]  # .2 and .4 of four with .9, .2, .4 and .6


def test_state_is_saved():
    source = visited({1: 3, 2: 1}, [0.5, 0.1, 0.9, 0.3])
    source.select(2, at(1, Kinds(4)))
    again = HardestPhases({1: 3, 2: 1})
    again.load_state_dict(source.state_dict())
    assert [c.select(2, at(1, Kinds(4))) for c in (source, again)] == [[0, 1]] * 2
    assert [c.select(2, at(2, Kinds(4))) for c in (source, again)] == [[1, 1]] * 2


def test_a_run_that_resumes_after_a_phase_begins_it():
    curriculum = visited({1: 3, 2: 2}, [0.5, 0.1, 0.9, 0.3])
    assert curriculum.select(2, at(5, Kinds(4))) == [1, 3]


@pytest.mark.parametrize("phases", [{}, {0: 5}, {1: 0.0}, {1: -2}, {1: 2.5}])
def test_refusals(phases):
    with pytest.raises(ValueError, match="phases must"):
        HardestPhases(phases)


@pytest.mark.parametrize("phases", [{1: 5}, {1: 3, 2: 3}, {1: 3, 2: 4}])
def test_sets_that_cannot_shrink_are_refused(phases):
    curriculum = visited(phases, [0.5, 0.1, 0.9, 0.3])
    with pytest.raises(ValueError, match="the sets must shrink"):
        curriculum.select(2, at(5, Kinds(4)))


def test_the_recipe_has_more_completions_for_fewer_problems():
    data = compose_words(("recipe=drive",)).data
    phases = instantiate(data.curriculum).phases
    left = [512]
    for keep in phases.values():
        left.append(len(select_hardest(dict.fromkeys(range(left[-1]), 0.0), keep)))
    assert left == [512, 210, 145, 73]
    completions = instantiate(data.group_size)
    assert [completions(i) for i in (0, 31, min(phases), 95)] == [8, 8, 32, 32]
    assert dict(data.reward.weights) == {"exact": 1.0}
