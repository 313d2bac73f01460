"""What a segment changed, and the advantage of a row over its baseline group, by hand."""

import torch
from torch.testing import assert_close

from mmrl.ops.segments import role_advantage, segment_advantage


def test_each_step_gets_what_it_changed():
    # three steps of 2, 1 and 3 tokens, then the reward 1: 6/9 - 4/9, 3/9 - 6/9, 1 - 3/9
    values = torch.tensor([[4, 4, 6, 3, 3, 3]]) / 9
    segment = torch.tensor([[0, 0, 1, 2, 2, 2]])
    mask = torch.ones(1, 6, dtype=torch.bool)
    out = segment_advantage(values, segment, torch.tensor([1.0]), mask)
    steps = torch.tensor([2.0, -3.0, 6.0]) / 9
    assert_close(out, steps[segment[0]][None])
    assert_close(steps.sum(), torch.tensor(1 - 4 / 9))
    half = segment_advantage(values, segment, torch.tensor([1.0]), mask, gamma=0.5)
    assert_close(half[0, [0, 2, 3]], torch.tensor([3 - 4, 1.5 - 6, 9 - 3]) / 9)


def test_nothing_is_learned_where_every_continuation_succeeds():
    mask = torch.ones(2, 4, dtype=torch.bool)
    segment = torch.tensor([[0, 1, 2, 3], [0, 0, 0, 0]])
    assert (segment_advantage(torch.ones(2, 4), segment, torch.ones(2), mask) == 0).all()


def test_what_was_read_between_belongs_to_no_segment():
    values = torch.tensor([[0.5, torch.nan, 0.25, torch.nan], [torch.nan] * 4])
    segment = torch.tensor([[0, 7, 1, -1], [-1] * 4])
    mask = torch.tensor([[True, False, True, False], [False] * 4])
    out = segment_advantage(values, segment, torch.tensor([1.0, 1.0]), mask)
    assert_close(out, torch.tensor([[-0.25, 0, 0.75, 0], [0, 0, 0, 0]]))


def test_a_row_is_compared_with_its_cell():
    # mean 0.125, sample standard deviation sqrt(3.1875 / 3): (1 - 0.125) / 1.030776 and so on
    reward = torch.tensor([1.0, -0.5, -1.0, 1.0, 5.0, 5.0, 7.0])
    baseline_group = torch.tensor([3, 3, 3, 3, 1, 1, 2])
    out = role_advantage(reward, baseline_group)
    expected = torch.tensor([0.848875, -0.606339, -1.09141, 0.848875])
    assert_close(out[:4], expected, atol=2e-6, rtol=0)
    assert (out[4:] == 0).all()  # all equal, and alone
    assert_close(role_advantage(reward, baseline_group, scale=False)[:2], torch.tensor([0.875, -0.625]))
