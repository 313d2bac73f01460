"""OFQL's target and loss by hand, its gradient against torch.func, and a bandit with two kinds of good actions."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext
from mmrl.methods.control.ofql import MeanFlowActions, MeanFlowLoss, flow_times
from mmrl.methods.control.td3_bc import ScaledActorLoss
from mmrl.ops.flow import interpolate, mean_velocity
from mmrl.policies.control.critic import Critics
from mmrl.policies.control.mean_flow import MeanFlowPolicy
from tests.laws.example import Example

LAWS = [Example(MeanFlowLoss())]


def linear_policy() -> MeanFlowPolicy:
    """u = 0.1 + 0.5 x - 0.2 r + 0.3 t."""
    policy = MeanFlowPolicy(1, 1, hidden=[1], flow_hidden=[])
    (layer,) = policy.head.layers
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 0.5, -0.2, 0.3]]))
        layer.bias.fill_(0.1)
    return policy


def test_the_target_by_hand():
    """a = 0.4, e = -0.6, t = 0.8, r = 0.2: a_t = 0.08 - 0.48 = -0.4, v = -1, u = 0.1 - 0.2 - 0.04 + 0.24 = 0.1.

    du/dt along the flow is 0.5 * -1 + 0.3 = -0.2, so u_tgt = -1 + 0.6 * 0.2 = -0.88 and the loss 0.98^2 = 0.9604.
    With r = t the target is v = -1.
    """
    action, noise, time = torch.tensor([[0.4]]), torch.tensor([[-0.6]]), torch.tensor([[0.8]])
    x, velocity = interpolate(action, noise, time), noise - action
    assert_close(x, torch.tensor([[-0.4]]))
    u, derivative = linear_policy().head.with_derivative(torch.zeros(1, 1), x, torch.tensor([[0.2]]), time, velocity)
    target = mean_velocity(velocity, derivative, time, torch.tensor([[0.2]]))
    assert_close(torch.cat([u, derivative, target]), torch.tensor([[0.1], [-0.2], [-0.88]]))
    assert_close((u - target).square(), torch.tensor([[0.9604]]))
    assert_close(mean_velocity(velocity, derivative, time, time), velocity)


def test_times_by_hand_and_their_distribution():
    """z = (0.4, -0.6): sigmoid(0) = 0.5 is t, sigmoid(-1) = 0.2689 is r; a third draw below the median makes r = t."""
    end_time, time = flow_times(torch.tensor([[0.4, -0.6, 1.0], [0.4, -0.6, -1.0]]), 0.5)
    assert_close(time, torch.full((2, 1), 0.5))
    assert_close(end_time, torch.tensor([[0.2689414], [0.5]]))
    draws = torch.randn(20000, 3, generator=torch.Generator().manual_seed(0))
    for ratio in (0.0, 0.25, 1.0):
        end_time, time = flow_times(draws, ratio)
        assert (end_time <= time).all() and abs((end_time == time).float().mean().item() - ratio) < 0.015


def context(models, seed: int = 0) -> UpdateContext:
    generator = torch.Generator().manual_seed(seed)
    return UpdateContext(
        models, lambda *shape: torch.randn(*shape, generator=generator), lambda loss: None, lambda metrics: None
    )


def test_the_gradient_is_that_of_the_equation():
    torch.manual_seed(0)
    policy, critic = MeanFlowPolicy(3, 2, hidden=[8], flow_hidden=[8]), Critics(3, 2, [8])
    state, action = torch.randn(6, 3), torch.rand(6, 1, 2) * 2 - 1
    batch = Batch(**{"obs.state": state}, action=action, action_mask=torch.ones(6, 1, dtype=torch.bool))
    out = MeanFlowActions()(batch, context({"policy": policy, "critic": critic}))
    loss = (MeanFlowLoss()(out, batch) + ScaledActorLoss(0.3)(out, batch)).mean()
    parameters = [*policy.actor.parameters(), *policy.head.parameters()]
    gradient = torch.autograd.grad(loss, parameters)

    generator = torch.Generator().manual_seed(0)
    times, noise, other = (torch.randn(6, width, generator=generator) for width in (3, 2, 2))
    end_time, time = flow_times(times, 0.5)
    velocity, x, features = noise - action[:, 0], interpolate(action[:, 0], noise, time), policy.actor(state)
    u = policy.head(features, x, end_time, time)
    flow = lambda place, at: policy.head(features, place, end_time, at)  # noqa: E731
    derivative = torch.func.jvp(flow, (x, time), (velocity, torch.ones_like(time)))[1].detach()
    imitation = (u - (velocity - (time - end_time) * derivative)).square().mean()
    one_step = other - policy.head(features, other, torch.zeros(6, 1), torch.ones(6, 1))
    q = critic(state, one_step.clamp(-1, 1))[:, 0, 0]
    expected = imitation - 0.3 / q.abs().mean().detach() * q.mean()
    assert_close(gradient, torch.autograd.grad(expected, parameters))


def test_a_row_outside_of_the_mask_changes_nothing():
    out = PolicyOutput(torch.zeros(2, 1), torch.zeros(2, 1), extra={"error": torch.tensor([[2.0], [float("nan")]])})
    assert MeanFlowLoss()(out, Batch(action_mask=torch.tensor([[True], [False]]))).tolist() == [[2.0], [0.0]]


class BanditCritic(nn.Module):
    """Q = 2 + sigmoid(6 a) of an action a: positive ones are better."""

    def forward(self, features, action):
        return 2 + torch.sigmoid(6 * action[:, None])


def train(eta: float, flow_ratio: float, steps: int = 700, width: int = 128, lr: float = 1e-2) -> MeanFlowPolicy:
    """An actor of a bandit whose recorded actions are -0.6 or 0.6, each with a standard deviation of 0.05."""
    torch.manual_seed(0)
    policy = MeanFlowPolicy(1, 1, hidden=[8], flow_hidden=[width, width])
    ctx, forward = context({"policy": policy, "critic": BanditCritic()}), MeanFlowActions(flow_ratio)
    optimizer = torch.optim.Adam([*policy.actor.parameters(), *policy.head.parameters()], lr)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = lr * (1 - step / steps)
        action = torch.randn(128, 1, 1).sign() * 0.6 + 0.05 * torch.randn(128, 1, 1)
        batch = Batch(**{"obs.state": torch.zeros(128, 1)}, action=action, action_mask=torch.ones(128, 1).bool())
        out = forward(batch, ctx)
        loss = MeanFlowLoss()(out, batch).mean()
        if eta:
            loss = loss + ScaledActorLoss(eta)(out, batch).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return policy


def draw(policy: MeanFlowPolicy) -> torch.Tensor:
    noise = torch.randn(2000, 1, generator=torch.Generator().manual_seed(9))
    return policy.rsample(torch.zeros(2000, 1), noise).action.detach()[:, 0]


def test_one_step_has_both_modes():
    both = draw(train(eta=0.0, flow_ratio=0.5))
    near = [((both - mode).abs() < 0.25).float().mean().item() for mode in (-0.6, 0.6)]
    assert min(near) > 0.35, near


def test_a_critic_chooses_the_better_mode():
    better = draw(train(eta=1.0, flow_ratio=0.5, steps=500))
    assert (better > 0.35).float().mean() > 0.9 and ((better + 0.6).abs() < 0.25).float().mean() < 0.01


def test_one_step_of_a_plain_flow_is_the_mean_of_the_modes():
    """At t = 1 the velocity of the plain flow is e - E[a], so that one step is E[a] = 0 from any noise."""
    policy = train(eta=0.0, flow_ratio=1.0, steps=400, width=64, lr=3e-3)
    noise = torch.randn(500, 1, generator=torch.Generator().manual_seed(9))
    ones = torch.ones(500, 1)
    action = noise - policy.head(policy.actor(torch.zeros(500, 1)), noise, ones, ones)
    assert action.mean().abs() < 0.15 and (action.abs() < 0.35).float().mean() > 0.9


def test_numbers_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"MeanFlowActions\.flow_ratio must be in \[0, 1\], got 1\.5"):
        MeanFlowActions(1.5)
