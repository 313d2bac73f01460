"""Soft Bellman residuals and lambda-returns, by hand and at the known optimum of a tree."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.ops.soft_returns import log_ratio_residual, next_inside, place_at_end, soft_lambda_returns

RATIO = torch.tensor([[0.5, -0.2, 1.0]])
VALUES = torch.tensor([[0.4, 0.5, 0.7]])
REWARD = torch.tensor([[0.0, 0.0, 1.0]])
ALL = torch.ones(1, 3).bool()


def test_the_residual_by_hand():
    # .05 - (.5 - .4) = -.05, -.02 - (.7 - .5) = -.22, .1 - (1 - .7) = -.2; mean square .0303
    ratio = RATIO.clone().requires_grad_()
    values = VALUES.clone().requires_grad_()
    residual = log_ratio_residual(ratio, values, REWARD, ALL, 0.1)
    assert_close(residual, torch.tensor([[-0.05, -0.22, -0.20]]))
    assert_close(residual.square().mean(), torch.tensor(0.0303))
    residual.square().mean().backward()
    assert_close(ratio.grad, 2 / 3 * 0.1 * residual.detach())
    assert values.grad is None


@pytest.mark.parametrize(
    ("gae_lambda", "expected"),
    [(0.0, [0.45, 0.72, 0.9]), (0.95, [0.8395, 0.91, 0.9]), (1.0, [0.87, 0.92, 0.9])],
)
def test_the_returns_by_hand(gae_lambda, expected):
    # soft rewards -.05, .02, .9; at lambda .95: .02 + .05 * .7 + .95 * .9 = .91, -.05 + .05 * .5 + .95 * .91 = .8395
    assert_close(soft_lambda_returns(RATIO, VALUES, REWARD, ALL, 0.1, gae_lambda), torch.tensor([expected]))


def test_without_reward_and_at_the_reference_only_the_end_is_left():
    residual = log_ratio_residual(torch.zeros(1, 3), torch.full((1, 3), 0.6), torch.zeros(1, 3), ALL, 0.1)
    assert_close(residual, torch.tensor([[0.0, 0.0, 0.6]]))


def test_forced_choices_are_passed_over():
    mask = torch.tensor([[True, False, True, True], [False, False, False, True]])
    value = torch.tensor([[1.0, torch.nan, 2, 3], [torch.nan, 9, 9, 4]])
    assert_close(next_inside(value, mask)[mask], torch.tensor([2.0, 3, 0, 0]))
    assert_close(next_inside(value, mask, torch.tensor([5.0, 6.0]))[mask], torch.tensor([2.0, 3, 5, 6]))
    assert_close(place_at_end(torch.tensor([7.0, 8.0]), mask), torch.tensor([[0.0, 0, 0, 7], [0, 0, 0, 8]]))
    wide = torch.tensor([[0.5, torch.nan, -0.2, 1.0]])
    seen = torch.tensor([[True, False, True, True]])
    values = torch.tensor([[0.4, torch.nan, 0.5, 0.7]])
    reward = place_at_end(torch.ones(1), seen)
    for function, arguments in ((log_ratio_residual, (0.1,)), (soft_lambda_returns, (0.1, 0.95))):
        alone = function(RATIO, VALUES, REWARD, ALL, *arguments)
        assert_close(function(wide, values, reward, seen, *arguments)[seen], alone[0])


def test_the_soft_optimum_of_a_tree_leaves_no_residual():
    """Two choices of two ids each, rewards of the four leaves drawn, a reference that is not uniform."""
    generator, beta = torch.Generator().manual_seed(0), 0.3
    reward = torch.rand(2, 2, generator=generator).double()
    first = torch.tensor([0.3, 0.7]).double()
    second = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).double()
    below = beta * (second * (reward / beta).exp()).sum(1).log()  # V of the two second states
    root = beta * (first * (below / beta).exp()).sum().log()
    for a in range(2):
        for b in range(2):
            ratio = torch.stack([(below[a] - root) / beta, (reward[a, b] - below[a]) / beta])[None]
            values = torch.stack([root, below[a]])[None]
            mask, paid = torch.ones(1, 2).bool(), torch.stack([torch.zeros(()).double(), reward[a, b]])[None]
            assert_close(log_ratio_residual(ratio, values, paid, mask, beta), torch.zeros(1, 2).double())
            for gae_lambda in (0.0, 0.5, 1.0):
                assert_close(soft_lambda_returns(ratio, values, paid, mask, beta, gae_lambda), values)
    policy = first * ((below - root) / beta).exp()  # and this policy is a distribution
    assert_close(policy.sum(), torch.ones(()).double())
