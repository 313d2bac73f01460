"""OREO's residuals and losses by hand."""

import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.methods.offline.oreo import PathPolicy, PathValue, policy_residual, suffix_sum, value_residual

RATIO = torch.tensor([[0.5, -0.2, 1.0]])
VALUES = torch.tensor([[0.6, 0.7, 0.8]])
ONE = torch.tensor([1.0])
ALL = torch.ones(1, 3, dtype=torch.bool)


def test_by_hand():
    # D = [1.3, 0.8, 1.0]; V - 1 + 0.1 D = [-0.27, -0.22, -0.10]; mean square (0.0729 + 0.0484 + 0.01) / 3 = 0.043767
    assert_close(suffix_sum(RATIO, ALL), torch.tensor([[1.3, 0.8, 1.0]]))
    residual = value_residual(VALUES, RATIO, ONE, ALL, 0.1)
    assert_close(residual, torch.tensor([[-0.27, -0.22, -0.10]]))
    assert_close(residual.square().mean(), torch.tensor(0.043767), atol=1e-6, rtol=0)


def test_a_choice_answers_for_itself():
    # d mean e^2 / d lp_t = 2 beta e_t / T: 0.0667 * [-0.27, -0.22, -0.10]
    ratio, values = RATIO.clone().requires_grad_(), VALUES.clone().requires_grad_()
    policy_residual(values, ratio, ONE, ALL, 0.1).square().mean().backward()
    assert_close(ratio.grad, torch.tensor([[-0.018, -0.0146667, -0.0066667]]), atol=1e-6, rtol=0)
    assert values.grad is None
    value_residual(values, ratio.detach(), ONE, ALL, 0.1).square().mean().backward()
    assert_close(values.grad, 2 / 3 * torch.tensor([[-0.27, -0.22, -0.10]]))


def test_consistent_values_leave_nothing_to_learn():
    values = ONE - 0.1 * suffix_sum(RATIO, ALL)
    for residual in (value_residual, policy_residual):
        assert_close(residual(values, RATIO, ONE, ALL, 0.1), torch.zeros(1, 3), atol=1e-7, rtol=0)


def test_forced_choices_are_skipped():
    mask = torch.tensor([[True, False, True]])
    assert_close(suffix_sum(torch.tensor([[0.5, torch.nan, 1.0]]), mask), torch.tensor([[1.5, 0.0, 1.0]]))


def test_the_losses_by_hand():
    """beta .1, R = 1, the middle choice forced: D = [1.5, ., 1], V - 1 + .1 D = [-.25, ., -.1].

    The value loss moves the values alone, by 2 e, and the policy loss the log-probs alone, by 2 beta e.
    """
    mask = torch.tensor([[True, False, True]])
    for term, moved, still, gradient in (
        (PathValue(0.1), "values", "logprobs", [[-0.5, 0.0, -0.2]]),
        (PathPolicy(0.1), "logprobs", "values", [[-0.05, 0.0, -0.02]]),
    ):
        logprobs = torch.tensor([[0.5, 9.0, 1.0]], requires_grad=True)
        out = PolicyOutput(logprobs, logprobs.detach(), torch.tensor([[0.6, 5.0, 0.8]], requires_grad=True))
        reference = torch.tensor([[0.0, torch.nan, 0.0]])
        loss = term(out, Batch(action_mask=mask, episode_reward=ONE, ref_logprobs=reference))
        assert_close(loss, torch.tensor([[0.0625, 0.0, 0.01]]))
        loss.sum().backward()
        assert_close(getattr(out, moved).grad, torch.tensor(gradient))
        assert getattr(out, still).grad is None


def test_the_residuals_are_0_where_a_choice_is_forced():
    mask = torch.tensor([[True, False, True]])
    values, ratio = torch.tensor([[0.6, torch.nan, 0.8]]), torch.tensor([[0.5, torch.nan, 1.0]])
    for residual in (value_residual, policy_residual):
        assert_close(residual(values, ratio, ONE, mask, 0.1), torch.tensor([[-0.25, 0.0, -0.1]]))
