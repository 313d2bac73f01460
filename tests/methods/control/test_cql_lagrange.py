"""CQL's Lagrange variant: both losses by hand, whose gradient is whose, and the gap comes to the threshold."""

import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext
from mmrl.methods.control.cql import ConservativeActions, LagrangeConservativeActions, LagrangePenalty, ThresholdLoss
from mmrl.policies.control.actor import SquashedPolicy
from mmrl.policies.control.critic import Critics, LagrangeMultiplier

BATCH = Batch(action_mask=torch.tensor([[True]]))


def output(q, q_soft, log_alpha):
    nothing = torch.zeros(1, 1)
    return PolicyOutput(nothing, nothing, extra={"q": q, "q_soft": q_soft, "log_multiplier": log_alpha})


def test_the_two_losses_by_hand():
    """q_soft - q = 2 - .5 = 1.5 and 1 - 3 = -2, weight 2, threshold .5: gaps 2.5 and -4.5; alpha = e^.5 = 1.648721.

    The penalty is alpha (2.5 - 4.5) = -3.297443, the other loss -alpha (-1) = 1.648721. Its gradient in log alpha is
    1.648721 too: alpha falls, since the mean gap is below 0. The gradient in q is -2 alpha = -3.297443 for each critic.
    """
    q = torch.tensor([[[0.5, 3.0]]], requires_grad=True)
    q_soft = torch.tensor([[[2.0, 1.0]]], requires_grad=True)
    log_alpha = torch.tensor([0.5], requires_grad=True)
    out = output(q, q_soft, log_alpha)
    penalty, dual = LagrangePenalty(0.5, 2.0)(out, BATCH), ThresholdLoss(0.5, 2.0)(out, BATCH)
    assert_close(penalty, torch.tensor([[-3.297443]]))
    assert_close(dual, torch.tensor([[1.648721]]))
    penalty.sum().backward()
    assert_close(q.grad, torch.full((1, 1, 2), -3.297443))
    assert_close(q_soft.grad, torch.full((1, 1, 2), 3.297443))
    assert log_alpha.grad is None
    q.grad = None
    dual.sum().backward()
    assert_close(log_alpha.grad, torch.tensor([1.648721]))
    assert q.grad is None
    metrics = ThresholdLoss(0.5, 2.0).metrics(out, BATCH)
    assert_close(metrics["gap"], torch.tensor([[-1.0]]))
    assert_close(metrics["alpha"], torch.tensor([[1.648721]]))


def test_alpha_has_a_largest_value():
    """log alpha = 20 is e^20 = 4.9e8: the penalty of a gap of 1 is 1e6, and nothing raises alpha further."""
    log_alpha = torch.tensor([20.0], requires_grad=True)
    out = output(torch.zeros(1, 1, 1), torch.ones(1, 1, 1), log_alpha)
    assert LagrangePenalty(0.0, 1.0)(out, BATCH).item() == 1e6
    ThresholdLoss(0.0, 1.0)(out, BATCH).sum().backward()
    assert log_alpha.grad.item() == 0


def test_the_gap_comes_to_the_threshold():
    """Two actions, of which the first is recorded, and a value that pulls the other way: TD loss .5 sum (Q - y)^2 with
    y = (0, 2). log(e^Q0 + e^Q1) - Q0 = log(1 + e^2) = 2.126928 without a penalty, and 1 with a multiplier: then
    Q1 - Q0 = log(e - 1) = .541325.
    """
    values = torch.tensor([0.0, 2.0], requires_grad=True)
    log_alpha = torch.tensor([0.0], requires_grad=True)
    optimizer = torch.optim.Adam([values, log_alpha], lr=0.05)
    for _ in range(500):
        out = output(values[:1].view(1, 1, 1), values.logsumexp(0).view(1, 1, 1), log_alpha)
        td = 0.5 * (values - torch.tensor([0.0, 2.0])).square().sum()
        loss = td + LagrangePenalty(1.0, 1.0)(out, BATCH).sum() + ThresholdLoss(1.0, 1.0)(out, BATCH).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert_close((values.logsumexp(0) - values[0]).item(), 1.0, atol=0.01, rtol=0)
    assert_close((values[1] - values[0]).item(), math.log(math.e - 1), atol=0.02, rtol=0)


def test_the_forward_pass_is_that_of_cql():
    torch.manual_seed(0)
    policy, critic = SquashedPolicy(observation_dims=3, actions=2, hidden=[8]), Critics(3, 2, [8])
    multiplier = LagrangeMultiplier(2.0)
    batch = Batch(**{"obs.state": torch.randn(2, 3), "next.state": torch.randn(2, 3)}, action=torch.randn(2, 1, 2))
    models = {"policy": policy, "critic": critic, "cql_alpha": multiplier}
    outs = []
    for kind in (ConservativeActions, LagrangeConservativeActions):
        draws = torch.Generator().manual_seed(1)
        normal = lambda *shape: torch.randn(*shape, generator=draws)  # noqa: E731, B023
        ctx = UpdateContext(models, normal, lambda loss: None, lambda metrics: None)
        outs.append(kind(samples=2)(batch, ctx))
    plain, lagrange = outs
    for name in ("q", "q_soft"):
        assert torch.equal(plain.extra[name], lagrange.extra[name])
    assert_close(lagrange.extra["log_multiplier"].exp(), torch.tensor([2.0]))
    assert LagrangeConservativeActions().models() == {"policy", "critic", "cql_alpha"}


def test_refusals():
    with pytest.raises(ValueError, match=r"LagrangePenalty\.weight"):
        LagrangePenalty(weight=0.0)
