"""Problems by the variance of their rates, and what is selected before and after."""

import pytest

from mmrl.config.compose import compose
from mmrl.methods.problems.one_shot import HighestVariance
from tests.curricula.test_prioritised import Kinds, at
from tests.methods.problems.test_mopps import shown

LAWS = [lambda: HighestVariance(2, count=4)]

RATES = {0: [1, 1, 1, 1, 1], 1: [0, 0.1, 0, 0.1, 0], 2: [0, 0.5, 1, 0.5, 1], 3: [0, 0.1, 0, 0.1, 0]}


def explored(count=1):
    curriculum = HighestVariance(explore_iterations=5, count=count)
    for visit in range(5):
        curriculum.select(4, at(visit, Kinds(4)))
        curriculum.observe([shown(index, [rates[visit]]) for index, rates in RATES.items()])
    return curriculum


def test_the_problem_that_varies_most_fills_the_iteration():
    assert explored().select(6, at(5, Kinds(4))) == [2] * 6
    # variances .14, .0024 (twice, the first problem first) and 0
    assert explored(3).select(7, at(5, Kinds(4))) == [2, 1, 3, 2, 1, 3, 2]


def test_problems_are_shuffled_before():
    curriculum = HighestVariance(explore_iterations=2)
    assert (
        sorted(curriculum.select(4, at(0, Kinds(4)))) == sorted(curriculum.select(4, at(1, Kinds(4)))) == [0, 1, 2, 3]
    )


def test_the_choice_stays_and_is_saved():
    curriculum = explored()
    curriculum.select(1, at(5, Kinds(4)))
    for visit in range(9):
        curriculum.observe([shown(1, [float(visit % 2)])])
    assert curriculum.select(1, at(6, Kinds(4))) == [2]
    for source in (curriculum, explored()):
        again = HighestVariance(explore_iterations=5)
        again.load_state_dict(source.state_dict())
        assert again.select(2, at(7, Kinds(4))) == [2, 2]


def test_a_solved_problem_is_still_trained_on():
    """Its advantages are 0; a transform that drops the group would end the entropy bonus, the KL and the run."""
    config = compose(["recipe=one_shot"])
    assert not [name for name, part in config.data.transforms.items() if part is not None]
    assert config.model.objective.coefficients == {"kl": 0.001, "entropy": 0.001}


def test_refusals():
    with pytest.raises(ValueError, match="3 problems are to be chosen, but 0 were visited"):
        HighestVariance(1, 3).select(1, at(1, Kinds(4)))
    for name, wrong in (("explore_iterations", (0, 1)), ("count", (1, 0))):
        with pytest.raises(ValueError, match=f"{name} must be at least 1"):
            HighestVariance(*wrong)
