"""Two discs with an observed goal: what is told, and a point of another colour by hand."""

import numpy as np
import pytest

from sims.point.discs import TwoDiscs
from sims.point.goal_discs import GoalDiscs


def test_the_task_is_told_and_all_else_is_that_of_two_discs():
    one, other = GoalDiscs("blue").make(2), TwoDiscs("blue").make(2)
    observation, expected = one.reset(seed=[3, 4])[0], other.reset(seed=[3, 4])[0]
    assert observation["task"].tolist() == [[0, 1], [0, 1]] and one.observation_space.contains(observation)
    assert GoalDiscs("red").make(1).reset(seed=[3])[0]["task"].tolist() == [[1, 0]]
    steps = [env.step(np.array([[1.0, 0.5], [0.0, -1.0]])) for env in (one, other)]
    for name in ("state", "image", "instruction"):
        np.testing.assert_array_equal(observation[name], expected[name])
        np.testing.assert_array_equal(steps[0][0][name], steps[1][0][name])
    np.testing.assert_array_equal(steps[0][1], steps[1][1])
    assert GoalDiscs().sizes() == {**TwoDiscs().sizes(), "observation_dims": 2, "image_size": 20}


def test_a_yellow_point_differs_where_the_white_one_is():
    """The point in the middle of 20 pixels: its centre is yellow, (230, 210, 40), and a far pixel is as it was."""
    envs = [GoalDiscs(point=colour).make(1) for colour in ("white", "yellow")]
    for env in envs:
        env.reset(seed=[0])
        env._places[0] = [[0.05, 0.05], [0.6, 0.6], [-0.6, -0.6]]
    white, yellow = (env.render()[0].astype(int) for env in envs)
    assert white[9, 10].tolist() == [250, 250, 250] and yellow[9, 10].tolist() == pytest.approx([230, 210, 40], abs=1)
    changed = (white != yellow).any(-1)
    assert changed[9, 10] and changed.sum() < 30
    assert abs(white - yellow)[~changed].max() == 0 and not changed[0].any() and not changed[:, 0].any()
