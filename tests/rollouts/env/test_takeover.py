"""When a scripted human takes over: the rule by hand."""

import numpy as np
import pytest

from mmrl.rollouts.env.takeover import TakeoverRule, sum_distances


def test_a_human_takes_over_after_steps_without_progress():
    """patience 2, duration 2, margin 0.1. Distances of environment 0: 1.0 is progress from infinity, 0.95 is none
    (1.0 - 0.1 is smaller), 0.85 is, then 0.85 twice is none: the human acts in steps 4 and 5. Afterwards any distance
    is progress, and two steps without it bring the human back in step 8. Environment 1 gets on in every step."""
    rule = TakeoverRule(patience=2, duration=2, margin=0.1)
    rule.begin(2)
    distances = [1.0, 0.95, 0.85, 0.85, 0.85, 0.5, 2.0, 2.0, 2.0, 2.0]
    acts = [rule.decide(np.array([d, -float(step)])).tolist() for step, d in enumerate(distances)]
    assert [each[0] for each in acts] == [False] * 4 + [True] * 2 + [False] * 2 + [True] * 2
    assert not any(each[1] for each in acts)


def test_a_new_episode_forgets_the_one_before():
    rule = TakeoverRule(patience=1, duration=5, margin=0)
    rule.begin(2)
    rule.decide(np.array([1.0, 1.0]))
    assert rule.decide(np.array([1.0, 1.0])).tolist() == [True, True]
    rule.reset(np.array([True, False]))
    assert rule.decide(np.array([1.0, 1.0])).tolist() == [False, True]


def test_distances_are_summed_and_a_simulator_without_any_is_refused():
    scores = {"success": np.array([0.0]), "tip_distance_m": np.array([0.25]), "goal_distance_m": np.array([0.5])}
    assert sum_distances(scores, "push").tolist() == [0.75]
    with pytest.raises(ValueError, match=r"sim 'maze' reports no score that ends in distance_m \(it has success\)"):
        sum_distances({"success": np.array([0.0])}, "maze")


@pytest.mark.parametrize("name, value", [("patience", 0), ("duration", 0), ("margin", -0.1)])
def test_numbers_out_of_range_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"takeover\.{name} must be at least"):
        TakeoverRule(**{name: value})
