"""TD3+BC's actor loss by hand, and its gradient against plain torch."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext
from mmrl.methods.control.td3_bc import ActionRegression, RegressedActions, ScaledActorLoss
from mmrl.policies.control.actor import DeterministicPolicy
from mmrl.policies.control.critic import Critics
from tests.laws.example import Example

LAWS = [Example(ScaledActorLoss(1.0))]
MASK = Batch(action_mask=torch.ones(2, 1, dtype=torch.bool))


def test_the_loss_by_hand():
    """Q_1 = (1, -3): mean |Q_1| = 2, lambda = 2.5 / 2 = 1.25; losses -1.25 and 3.75. Q_2 plays no part."""
    q = torch.tensor([[[1.0, 50.0]], [[-3.0, 70.0]]], requires_grad=True)
    out = PolicyOutput(torch.zeros(2, 1), torch.zeros(2, 1), extra={"q": q, "error": torch.tensor([[0.25], [0.5]])})
    loss = ScaledActorLoss(2.5)(out, MASK)
    assert_close(loss, torch.tensor([[-1.25], [3.75]]))
    assert ActionRegression()(out, MASK).tolist() == [[0.25], [0.5]]
    loss.mean().backward()  # lambda has no gradient
    assert_close(q.grad, torch.tensor([[[-0.625, 0.0]], [[-0.625, 0.0]]]))


def test_a_row_outside_of_the_mask_changes_nothing():
    q = torch.tensor([[[2.0]], [[float("nan")]]])
    out = PolicyOutput(torch.zeros(2, 1), torch.zeros(2, 1), extra={"q": q})
    loss = ScaledActorLoss(2.5)(out, Batch(action_mask=torch.tensor([[True], [False]])))
    assert loss.tolist() == [[-2.5], [0.0]]


def test_the_gradient_is_that_of_the_equation():
    torch.manual_seed(0)
    policy, critic = DeterministicPolicy(observation_dims=3, actions=2, hidden=[8]), Critics(3, 2, [8])
    batch = Batch(
        **{"obs.state": torch.randn(5, 3)},
        action=torch.rand(5, 1, 2) * 2 - 1,
        action_mask=torch.ones(5, 1, dtype=torch.bool),
    )
    ctx = UpdateContext({"policy": policy, "critic": critic}, torch.zeros, lambda loss: None, lambda metrics: None)
    out = RegressedActions()(batch, ctx)
    loss = (ScaledActorLoss(2.5)(out, batch) + ActionRegression()(out, batch)).mean()
    parameters = [*policy.actor.parameters(), *policy.head.parameters()]
    gradient = torch.autograd.grad(loss, parameters)

    action = policy.head(policy.actor(batch["obs.state"])).tanh()
    q = critic(batch["obs.state"], action)[:, 0, 0]
    expected = -2.5 / q.abs().mean().detach() * q.mean() + torch.nn.functional.mse_loss(action, batch["action"][:, 0])
    assert_close(gradient, torch.autograd.grad(expected, parameters))


def test_alpha_out_of_range():
    with pytest.raises(ValueError, match=r"ScaledActorLoss\.alpha must be > 0, got 0"):
        ScaledActorLoss(0)
