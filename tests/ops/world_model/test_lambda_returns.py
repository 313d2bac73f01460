"""Lambda-returns by hand and as means of n-step returns."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.ops.returns import generalised_advantages
from mmrl.ops.world_model.lambda_returns import lambda_returns


def test_by_hand():
    """lambda 0.5, discount 0.9: R_1 = 2 + 0.9 * 4 = 5.6; R_0 = 1 + 0.9 * (0.5 * 3 + 0.5 * 5.6) = 4.87."""
    reward, next_value = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])
    returns = lambda_returns(reward, torch.full((1, 2), 0.9), next_value, 0.5)
    assert_close(returns, torch.tensor([[4.87, 5.6]]))
    # nothing follows the first decision
    returns = lambda_returns(reward, torch.tensor([[0.0, 0.9]]), next_value, 0.5)
    assert_close(returns, torch.tensor([[1.0, 5.6]]))


def brute_force(reward, discount, next_value, gae_lambda):
    """(1 - lambda) sum_n lambda^(n-1) R^(n), with all remaining weight on the longest."""
    horizon, out = len(reward), []
    for start in range(horizon):
        total, factor, earned = 0.0, 1.0, 0.0
        longest = horizon - start
        for n in range(1, longest + 1):
            earned += factor * reward[start + n - 1]
            factor *= discount[start + n - 1]
            n_step = earned + factor * next_value[start + n - 1]
            weight = gae_lambda ** (n - 1) * (1 if n == longest else 1 - gae_lambda)
            total += weight * n_step
        out.append(total)
    return out


@pytest.mark.parametrize("gae_lambda", [0.0, 0.6, 0.95, 1.0])
def test_mean_of_n_step_returns(gae_lambda):
    generator = torch.Generator().manual_seed(0)
    reward, next_value = torch.randn(2, 4, 7, generator=generator, dtype=torch.float64)
    discount = torch.rand(4, 7, generator=generator, dtype=torch.float64)
    returns = lambda_returns(reward, discount, next_value, gae_lambda)
    expected = [
        brute_force(*(part[row].tolist() for part in (reward, discount, next_value)), gae_lambda) for row in range(4)
    ]
    assert_close(returns, torch.tensor(expected, dtype=torch.float64))


def test_with_one_discount_they_are_advantages_and_values():
    generator = torch.Generator().manual_seed(1)
    reward, values = torch.randn(2, 3, 6, generator=generator)
    bootstrap = torch.randn(3, generator=generator)
    mask = torch.ones(3, 6, dtype=torch.bool)
    advantages = generalised_advantages(reward, values, mask, bootstrap, 0.97, 0.8)
    next_value = torch.cat([values[:, 1:], bootstrap[:, None]], dim=1)
    assert_close(lambda_returns(reward, torch.full((3, 6), 0.97), next_value, 0.8), advantages + values)
