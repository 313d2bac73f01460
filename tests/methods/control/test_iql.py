"""IQL's losses by hand and against loops over rows, and one update against plain torch."""

import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext
from mmrl.learners.phases.replayed import ReplayLogprobs
from mmrl.methods.control.iql import ExpectileLoss, ImplicitAdvantage, ReplayedValues, ValueTarget
from mmrl.objectives.actor_critic.advantage_weighted import AdvantageWeightedRegression
from mmrl.objectives.actor_critic.expectile import expectile_loss
from mmrl.policies.control.critic import Critics
from mmrl.policies.control.tanh_mean import TanhMeanPolicy
from mmrl.policies.control.value import ValueNetwork
from tests.laws.example import Example

LAWS = [Example(ExpectileLoss(0.9)), Example(AdvantageWeightedRegression(0.5))]


def models():
    torch.manual_seed(0)
    return {
        "policy": TanhMeanPolicy(3, 2, hidden=[8]),
        "value": ValueNetwork(3, [8]),
        "target_critic": Critics(3, 2, [8]),
    }


def transitions(rows: int) -> Batch:
    generator = torch.Generator().manual_seed(1)
    return Batch(
        **{
            "obs.state": torch.randn(rows, 3, generator=generator),
            "next.state": torch.randn(rows, 3, generator=generator),
        },
        action=torch.rand(rows, 1, 2, generator=generator) * 2 - 1,
        action_mask=torch.ones(rows, 1, dtype=torch.bool),
        reward=torch.randn(rows, generator=generator),
        discount=torch.tensor([0.9, 0.0] * (rows // 2)),
    )


def context(parts) -> UpdateContext:
    return UpdateContext(parts, torch.zeros, lambda loss: None, lambda metrics: None)


def test_expectile_by_hand():
    """tau 0.7: u = 0.6 costs 0.7 * 0.36 = 0.252, u = -0.6 costs 0.3 * 0.36 = 0.108."""
    assert_close(expectile_loss(torch.tensor([[0.6, -0.6]]), 0.7), torch.tensor([[0.252, 0.108]]))


def test_the_minimum_is_the_expectile():
    """Of Q = 0 and 1, equally frequent, the expectile solves tau (1 - v) = (1 - tau) v, so v = tau."""
    v = torch.zeros(1, 1, requires_grad=True)
    optimizer = torch.optim.SGD([v], lr=0.2)
    for _ in range(200):
        optimizer.zero_grad()
        out = PolicyOutput(
            torch.zeros(2, 1), torch.zeros(2, 1), extra={"v": v.expand(2, 1), "q": torch.tensor([[[0.0]], [[1.0]]])}
        )
        ExpectileLoss(0.9)(out, Batch(action_mask=torch.ones(2, 1, dtype=torch.bool))).mean().backward()
        optimizer.step()
    assert_close(v.item(), 0.9)


def test_phases_are_loops_over_rows():
    parts, batch = models(), transitions(6)
    out = ReplayedValues()(batch, context(parts))
    returns = ValueTarget()(batch, context(parts))["returns"]
    advantages = ImplicitAdvantage()(batch, context(parts))["recorded_advantages"]
    assert not returns.requires_grad and not advantages.requires_grad
    smallest = set()
    for row in range(6):
        state, following = batch["obs.state"][row : row + 1], batch["next.state"][row : row + 1]
        q = parts["target_critic"](state, batch["action"][row])[0, 0]
        smallest.add(int(q.argmin()))
        v, after = parts["value"](state)[0, 0], parts["value"](following)[0, 0]
        assert_close(out.extra["v"][row, 0], v)
        assert_close(out.extra["q"][row, 0], q)
        assert_close(returns[row, 0], batch["reward"][row] + (0.9 if row % 2 == 0 else 0.0) * after.detach())
        assert_close(advantages[row, 0], (min(q[0], q[1]) - v).detach())
    assert smallest == {0, 1}  # each critic is the smaller one somewhere


def test_recorded_actions_have_the_gaussian_density_of_the_policy():
    parts, batch = models(), transitions(4)
    policy = parts["policy"]
    with torch.no_grad():
        policy.head.log_std.copy_(torch.tensor([-0.5, 0.3]))
        batch["action"][0] = 1.0  # at the border of the box
    mean = policy.head.linear(policy.actor(batch["obs.state"])).tanh()
    density = torch.distributions.Normal(mean, policy.head.log_std.exp()).log_prob(batch["action"][:, 0]).sum(-1)
    out = ReplayLogprobs()(batch, context(parts))
    assert_close(out.logprobs[:, 0], density)
    sample = policy.rsample(batch["obs.state"], torch.full((4, 2), 3.0))
    assert sample.action.max() <= 1 and sample.action.min() >= -1


def test_the_weights_of_actions_by_hand():
    """beta 3: exp(0.3) = 1.349859; A = 2 asks for exp(6) = 403.4, which is clipped to 100. Loss: -weight * log pi."""
    term = AdvantageWeightedRegression(temperature=1 / 3)
    batch = Batch(action_mask=torch.ones(2, 1, dtype=torch.bool), recorded_advantages=torch.tensor([[0.1], [2.0]]))
    logprobs = torch.tensor([[-2.0], [-0.5]], requires_grad=True)
    loss = term(PolicyOutput(logprobs, -logprobs), batch)
    assert_close(loss, torch.tensor([[2 * math.exp(0.3)], [50.0]]))
    loss.sum().backward()
    assert_close(logprobs.grad, torch.tensor([[-math.exp(0.3)], [-100.0]]))
    huge = batch.with_columns(recorded_advantages=torch.tensor([[1e9], [-1e9]]))
    assert term(PolicyOutput(logprobs, -logprobs), huge).tolist() == [[200.0], [0.0]]


@pytest.mark.parametrize("build", [lambda: ExpectileLoss(1.0), lambda: AdvantageWeightedRegression(temperature=0.0)])
def test_numbers_out_of_range_are_refused(build):
    with pytest.raises(ValueError, match=r"ExpectileLoss\.expectile|AdvantageWeightedRegression\.temperature"):
        build()
