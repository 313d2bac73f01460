"""Prompts are selected by the posterior of their success rates."""

import numpy as np
import pytest

from mmrl.core.types import Episode, Prompt
from mmrl.methods.problems.mopps import Posterior, select_nearest, update_posterior
from tests.curricula.test_sampler import at

LAWS = [
    Posterior,
    lambda: Posterior(rule="within"),
]

RATES = np.array([0.1, 0.45, 0.9, 0.6, 0.52])
RNG = np.random.default_rng(0)


def shown(index, rewards, ended="done"):
    return [Episode(Prompt(f"numbers/train/{index}"), 0, i, reward=r, ended=ended) for i, r in enumerate(rewards)]


def test_hand_computed():
    # 2 of 8 from (1, 1), half forgotten: (.5 + .5 + 2, .5 + .5 + 6); then 8 of 8: (1.5 + .5 + 8, 3.5 + .5)
    assert update_posterior(1, 1, 2, 8, 0.5) == (3, 7)
    assert update_posterior(3, 7, 8, 8, 0.5) == (10, 4)
    assert update_posterior(3, 7, 4, 8, 1.0) == (7, 11)
    assert select_nearest(RATES, 0.5, 2, None, RNG).tolist() == [4, 1]
    assert set(select_nearest(RATES, 0.5, 3, 0.2, RNG)) == {1, 3, 4}
    assert select_nearest(RATES, 0.5, 5, 0.2, RNG)[3:].tolist() in ([0, 2], [2, 0])  # both .4 away, filled up


def test_within_the_tolerance_any_may_be_taken():
    # .5 and .25 are at most .25 away from .5, and .9 is not
    rates, rngs = np.array([0.5, 0.25, 0.9]), [np.random.default_rng(seed) for seed in range(20)]
    assert {int(select_nearest(rates, 0.5, 1, 0.25, rng)[0]) for rng in rngs} == {0, 1}
    # posteriors of .5, .55 and .9 that are nearly certain
    for rule, expected in (("nearest", {0}), ("within", {0, 1})):
        curriculum = Posterior(rule=rule)
        curriculum.known = {i: (1e8 * rate, 1e8 * (1 - rate)) for i, rate in enumerate((0.5, 0.55, 0.9))}
        assert {curriculum.select(1, at(i, 3))[0] for i in range(20)} == expected


def test_episodes_are_observed_and_failures_are_none():
    curriculum = Posterior(retain=0.5)
    curriculum.observe([shown(3, [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]), shown(4, [0.0], "error")])
    assert curriculum.known == {3: (3, 7)}
    with pytest.raises(ValueError, match="no success rate"):
        curriculum.observe([shown(5, [2.0])])


def test_it_comes_to_avoid_what_is_always_or_never_solved():
    """Six of ten problems are trivial, two impossible: the last two, of rate one half, are soon asked most."""
    curriculum, truth = Posterior(candidates=5), np.array([1.0] * 6 + [0.0] * 2 + [0.5] * 2)
    asked = np.zeros(10)
    for iteration in range(60):
        chosen = curriculum.select(2, at(iteration))
        assert len(set(chosen)) == 2
        curriculum.observe([shown(i, [1.0] * int(8 * truth[i]) + [0.0] * int(8 - 8 * truth[i])) for i in chosen])
        if iteration >= 20:
            asked[chosen] += 1
    assert asked[8:].sum() / asked.sum() > 0.7  # by chance .2
    means = [a / (a + b) for a, b in (curriculum.known[i] for i in range(10))]
    assert np.corrcoef(means, truth)[0, 1] > 0.7


def test_a_resumed_curriculum_goes_on_alike_and_ranks_agree():
    first, other_rank = Posterior(), Posterior()
    for iteration in range(4):
        chosen = first.select(3, at(iteration, 40))
        assert chosen == other_rank.select(3, at(iteration, 40, rank=1))
        again = first.select(2, at(iteration, 40))  # a refill
        assert not set(again) & set(chosen)
        other_rank.select(2, at(iteration, 40, rank=1))
        for part in (first, other_rank):
            part.observe([shown(i, [1.0, 0.0]) for i in chosen])
    resumed = Posterior()
    resumed.load_state_dict(first.state_dict())
    assert resumed.select(3, at(4, 40)) == first.select(3, at(4, 40))


def test_bad_settings_are_refused():
    for wrong in ({"target": 2.0}, {"retain": -0.1}, {"candidates": 0}):
        with pytest.raises(ValueError, match="curriculum"):
            Posterior(**wrong)
    with pytest.raises(ValueError, match=r"lower data\.num_prompts"):
        Posterior().select(11, at(0))
