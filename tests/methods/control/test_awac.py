"""AWAC's advantage by hand and against a loop over rows."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.learners.phases.base import UpdateContext
from mmrl.methods.control.awac import PolicyAdvantage
from mmrl.policies.control.critic import Critics
from mmrl.policies.control.tanh_mean import TanhMeanPolicy


class Slope(torch.nn.Module):
    """Q_1(s, a) = a and Q_2(s, a) = a + 1."""

    def forward(self, features, action):
        return torch.cat([action, action + 1], dim=-1)[:, None]


def test_the_advantage_by_hand():
    """The policy's mean is tanh(0) = 0, its deviation 1. Draws 0.5 and -0.1 are worth 0.2; 0.7 - 0.2 = 0.5."""
    policy = TanhMeanPolicy(3, 1, hidden=[4])
    torch.nn.init.zeros_(policy.head.linear.weight), torch.nn.init.zeros_(policy.head.linear.bias)
    draws = iter([torch.tensor([[0.5]]), torch.tensor([[-0.1]])])
    ctx = UpdateContext(
        {"policy": policy, "critic": Slope()}, lambda *shape: next(draws), lambda _: None, lambda _: None
    )
    batch = Batch(**{"obs.state": torch.ones(1, 3)}, action=torch.tensor([[[0.7]]]))
    assert_close(PolicyAdvantage(samples=2)(batch, ctx)["recorded_advantages"], torch.tensor([[0.5]]))


def test_the_advantage_is_a_loop_over_rows():
    torch.manual_seed(0)
    policy, critic = TanhMeanPolicy(3, 2, hidden=[8]), Critics(3, 2, [8])
    noise = torch.randn(6, 2)
    ctx = UpdateContext({"policy": policy, "critic": critic}, lambda *shape: noise, lambda _: None, lambda _: None)
    batch = Batch(**{"obs.state": torch.randn(6, 3)}, action=torch.rand(6, 1, 2) * 2 - 1)
    result = PolicyAdvantage()(batch, ctx)["recorded_advantages"]
    assert not result.requires_grad
    for row in range(6):
        state = batch["obs.state"][row][None]
        mean = policy.head.linear(policy.actor(state)).tanh()
        drawn = (mean + policy.head.log_std.exp() * noise[row]).clamp(-1, 1)
        q, value = (critic(state, action)[0, 0].min() for action in (batch["action"][row], drawn))
        assert_close(result[row, 0], (q - value).detach())


def test_no_samples_are_refused():
    with pytest.raises(ValueError, match=r"PolicyAdvantage\.samples must be at least 1, got 0"):
        PolicyAdvantage(samples=0).check()
