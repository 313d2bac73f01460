"""The skill reward and the slack by hand, and the cells that episodes visit."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Completion, Episode, Prompt, Turn
from mmrl.methods.control.metra import StateCoverage, StateTrace, centred_one_hot, constraint_slack, skill_reward


def test_reward_and_slack_by_hand():
    before, after, skill = torch.tensor([[0.2, -0.1]]), torch.tensor([[0.9, 0.6]]), torch.tensor([[0.6, 0.8]])
    # 0.7 * 0.6 + 0.7 * 0.8; mean square 0.49 leaves 0.51, of which 0.001 counts; 0.98 + 30 * 0.001
    progress, slack = skill_reward(before, after, skill), constraint_slack(before, after, 1e-3)
    assert_close(progress, torch.tensor([0.98]))
    assert_close(constraint_slack(before, after, 1.0), torch.tensor([0.51]))
    assert_close(progress + 30 * slack, torch.tensor([1.01]))
    # a step of (2, 1): 2.0; mean square 2.5 is 1.5 too long; 2 - 30 * 1.5
    progress, slack = skill_reward(before, before + torch.tensor([2.0, 1.0]), skill), torch.tensor([-1.5])
    assert_close(constraint_slack(before, before + torch.tensor([2.0, 1.0]), 1e-3), slack)
    assert_close(progress + 30 * slack, torch.tensor([-43.0]))


def test_one_of_several():
    expected = torch.tensor([[-1 / 3, 1, -1 / 3, -1 / 3]])
    assert_close(centred_one_hot(torch.tensor([[0.0, 1, 0, 0]])), expected)


def episode(*places, ended="time"):
    turns = [
        Turn(Completion({"state": torch.tensor([x, y, 0.6, 0.8])}, *(torch.zeros(2) for _ in range(3)), output=None))
        for x, y in places
    ]
    return Episode(Prompt("sim/0"), 0, 0, turns=turns, ended=ended)


def visited(episodes, **kwargs):
    return StateCoverage()([each.light() for each in StateTrace(**kwargs)(episodes, None)])


def test_cells_are_counted_once_over_all_episodes():
    """Cells of side 0.5: (0,0), (0,0), (1,0) and (1,0), (-1,0); the skill is no coordinate."""
    episodes = [episode((0.1, 0.1), (0.4, 0.2), (0.6, 0.2)), episode((0.9, 0.4), (-0.1, 0.0))]
    assert visited(episodes, cell_size=0.5) == {"visited": 3.0, "episodes": 2.0, "errors": 0.0}
    assert visited(episodes, entries=(0,), cell_size=10.0)["visited"] == 2


def test_episodes_that_failed_visit_nothing():
    assert visited([episode((5.0, 5.0), ended="error")]) == {"visited": 0.0, "episodes": 0.0, "errors": 1.0}


def test_refusals():
    result = episode((0.0, 0.0))
    with pytest.raises(KeyError, match=r"evaluation\.transforms"):
        StateCoverage()([result])
    result.turns[0].completion.observation.clear()
    with pytest.raises(KeyError, match="state vector"):
        visited([result])
