"""RRHF's loss by hand."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.methods.rewards.perfrl import RRHFLoss, rank_loss
from tests.laws.example import Example

LAWS = [Example(RRHFLoss(coef)) for coef in (0.0, 1.0)]


def loss(means, rewards, lengths, groups=None, coef=1.0):
    """Rows of `lengths` choices with equal log-probs, and garbage after them."""
    width = max(lengths)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    logprobs = torch.where(mask, torch.as_tensor(means)[:, None], -50.0).requires_grad_()
    group = torch.tensor(groups or [0] * len(rewards))
    batch = Batch(action_mask=mask, group=group, episode_reward=torch.tensor(rewards))
    return RRHFLoss(coef)(PolicyOutput(logprobs, logprobs.detach()), batch), logprobs


def test_by_hand():
    """p = -.5, -.9, -.7, rewards 1, 2, 3: max(0, -.5 + .9) + max(0, -.5 + .7) + max(0, -.9 + .7) = .4 + .2 + 0 = .6.

    The best row has four choices of -.7, whose negative log-likelihood is 2.8; together 3.4.
    """
    means, rewards = torch.tensor([-0.5, -0.9, -0.7]), torch.tensor([1.0, 2.0, 3.0])
    group, all_rows = torch.zeros(3).long(), torch.ones(3).bool()
    assert_close(rank_loss(means, rewards, group, all_rows), torch.full((3,), 0.6))
    found, _ = loss(means, [1.0, 2.0, 3.0], [2, 3, 4])
    assert_close(found, torch.full((3,), 3.4))
    assert_close(loss(means, [1.0, 2.0, 3.0], [2, 3, 4], coef=0.0)[0], torch.full((3,), 0.6))


def test_equal_rewards_have_no_ranking():
    means = torch.tensor([-0.5, -0.9])
    assert_close(rank_loss(means, torch.ones(2), torch.zeros(2).long(), torch.ones(2).bool()), torch.zeros(2))
    found, _ = loss(means, [1.0, 1.0], [2, 4])  # the mean of 1.0 and 3.6
    assert_close(found, torch.full((2,), 2.3))


def test_groups_do_not_meet():
    means = torch.tensor([-0.5, -2.0, -0.9, -1.0])
    found, _ = loss(means, [1.0, 5.0, 2.0, 7.0], [1, 1, 1, 1], groups=[4, 9, 4, 9])
    # group 4: .4 + .9; group 9: max(0, -2 + 1) = 0 and 1.0
    assert_close(found, torch.tensor([1.3, 1.0, 1.3, 1.0]))


def test_the_gradient_by_hand():
    """The one violated pair of rows of two and of four choices: 1/2 to each choice of the worse, -1/4 of the better."""
    found, logprobs = loss(torch.tensor([-0.5, -0.9]), [0.0, 1.0], [2, 4], coef=0.0)
    found.mean().backward()
    assert_close(logprobs.grad, torch.tensor([[0.5, 0.5, 0, 0], [-0.25] * 4]))
    ordered, logprobs = loss(torch.tensor([-0.9, -0.5]), [0.0, 1.0], [2, 4])
    ordered.mean().backward()  # no pair is violated: imitation of the better row alone
    assert_close(logprobs.grad, torch.tensor([[0.0] * 4, [-1.0] * 4]))


def test_a_row_without_choices_is_left_out():
    found, _ = loss(torch.tensor([-0.5, -0.9, -0.7]), [1.0, 2.0, 9.0], [2, 3, 0])
    assert_close(found, torch.tensor([0.4 + 2.7, 0.4 + 2.7, 0.0]))


def test_refusals():
    with pytest.raises(ValueError, match="imitation_coef"):
        RRHFLoss(-1.0)


def test_a_row_without_choices_is_neither_worse_nor_better_nor_best():
    """p = -.5 and -.9 with two and three choices: 2.7 for the best that counts, and .4 where it is the better one."""
    means = torch.tensor([-0.5, -0.9, -0.7])
    for reward in (0.0, 2.0):  # below all rows, and as good as the best
        value, _ = loss(means, [1.0, 2.0, reward], [2, 3, 0])
        assert_close(value, torch.tensor([0.4 + 2.7, 0.4 + 2.7, 0.0]))
    # rank_loss by itself: the uncounted row has p = 0, above the others, and the lowest reward: .5 + .9 would be added
    counted = torch.tensor([True, True, False])
    values = rank_loss(torch.tensor([-0.5, -0.9, 0.0]), torch.tensor([1.0, 2.0, 0.0]), torch.zeros(3).long(), counted)
    assert_close(values, torch.full((3,), 0.4))
    # nor does it count as an unlikely better one: 8.5 and 8.1 would be added
    values = rank_loss(torch.tensor([-0.5, -0.9, -9.0]), torch.tensor([1.0, 2.0, 9.0]), torch.zeros(3).long(), counted)
    assert_close(values, torch.full((3,), 0.4))
    alone, _ = loss(torch.tensor([-0.5, -0.9]), [1.0, 2.0], [2, 0], groups=[0, 1])
    assert_close(alone, torch.tensor([1.0, 0.0]))  # a group of it alone has no loss


def test_the_ranking_that_is_logged_by_hand():
    # as above, .4 without the third row, which has no choice and would be the worst and the most likely one
    mask = torch.tensor([[True, True], [True, False], [False, False]])
    logprobs = torch.tensor([[-0.5, -0.5], [-0.9, -50.0], [-50.0, -50.0]])
    batch = Batch(action_mask=mask, group=torch.zeros(3).long(), episode_reward=torch.tensor([1.0, 2.0, 0.0]))
    values = RRHFLoss().metrics(PolicyOutput(logprobs, logprobs), batch)
    assert_close(values, {"ranking": torch.full((3,), 0.4)})
