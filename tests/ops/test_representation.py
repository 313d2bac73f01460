import torch
from torch.testing import assert_close

from mmrl.ops.representation import centred_one_hot, constraint_slack, skill_reward


def test_by_hand():
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
