"""Advantages within groups, and of a row over its baseline group."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.ops.advantage import group_advantage, group_std

R = torch.tensor([1.0, 0.0, 0.0, 1.0])


ONE = torch.zeros(4).long()


@pytest.mark.parametrize(
    "scale, size",
    [("std", 1.0), ("sample", 0.8660254), (None, 0.5)],  # std 1/2; std 1/2; sample std sqrt(1/3)
)
def test_units(scale, size):
    out = group_advantage(R, ONE, "mean", scale, epsilon=0)
    assert_close(out, size * torch.tensor([1.0, -1.0, -1.0, 1.0]))


def test_epsilon_is_added_to_the_std():
    assert_close(group_advantage(R, ONE, epsilon=0.5), torch.tensor([0.5, -0.5, -0.5, 0.5]))


def test_leave_one_out():
    # r = 1, 0, .5, .5: others average 1/3, 2/3, 1/2, 1/2
    reward = torch.tensor([1.0, 0.0, 0.5, 0.5])
    out = group_advantage(reward, ONE, "leave_one_out", None)
    assert_close(out, torch.tensor([2 / 3, -2 / 3, 0, 0]))
    others = torch.stack([reward[torch.arange(4) != i].mean() for i in range(4)])
    assert_close(out, reward - others)


def test_no_baseline_is_the_reward():
    assert_close(group_advantage(R, ONE, None, None), R)


def test_interleaved_groups_equal_each_group_alone():
    generator = torch.Generator().manual_seed(0)
    reward, group = torch.randn(40, generator=generator), torch.randint(7, (40,), generator=generator) * 1000 - 3
    for baseline in ("mean", "leave_one_out"):
        for scale in ("std", "sample", None):
            together = group_advantage(reward, group, baseline, scale)
            for value in group.unique():
                alone = reward[group == value]
                size = len(alone)
                expected = alone - alone.mean()
                if baseline == "leave_one_out":
                    expected = expected * size / (size - 1)
                if scale is not None:
                    expected = expected / (alone.std(correction=int(scale == "sample")) + 1e-4)
                assert_close(together[group == value], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("baseline", ["mean", "leave_one_out"])
@pytest.mark.parametrize("scale", ["std", "sample", None])
def test_equal_rewards_and_single_episodes_are_exactly_zero(baseline, scale):
    # 0.1 three times does not sum to 0.3 in binary; a tiny std must not be blown up
    reward, group = torch.tensor([0.1, 0.1, 0.1, 7.0]), torch.tensor([0, 0, 0, 1])
    assert (group_advantage(reward, group, baseline, scale, epsilon=0) == 0).all()


def test_a_large_common_offset_costs_no_precision():
    offset = 2.0**20
    assert_close(group_advantage(R + offset, ONE, epsilon=0), group_advantage(R, ONE, epsilon=0), rtol=0, atol=1e-6)


def test_nothing_in_nothing_out():
    assert group_advantage(torch.zeros(0), torch.zeros(0).long()).shape == (0,)


def test_a_row_is_compared_with_its_baseline_group():
    # mean 0.125, sample standard deviation sqrt(3.1875 / 3): (1 - 0.125) / 1.030776 and so on
    reward = torch.tensor([1.0, -0.5, -1.0, 1.0, 5.0, 5.0, 7.0])
    baseline_group = torch.tensor([3, 3, 3, 3, 1, 1, 2])
    out = group_advantage(reward, baseline_group, scale="sample", epsilon=1e-6)
    expected = torch.tensor([0.848875, -0.606339, -1.09141, 0.848875])
    assert_close(out[:4], expected, atol=2e-6, rtol=0)
    assert (out[4:] == 0).all()  # all equal, and alone
    assert_close(group_advantage(reward, baseline_group, scale=None)[:2], torch.tensor([0.875, -0.625]))
    assert_close(group_std(reward, baseline_group, "sample")[:4], torch.full((4,), 1.030776), atol=2e-6, rtol=0)
