"""METRA, CQL, DQN and IQL on replayed transitions: masks, multipliers and what has a gradient, by hand."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext
from mmrl.methods.control.cql import (
    LARGEST,
    ConservativePenalty,
    LagrangeConservativeActions,
    LagrangePenalty,
    ThresholdLoss,
)
from mmrl.methods.control.dqn import ClippedTDLoss, QLearningTarget
from mmrl.methods.control.iql import ExpectileLoss, ReplayedValues, ValueTarget
from mmrl.methods.control.metra import (
    ConstraintPenalty,
    DualLoss,
    Representation,
    RepresentationLoss,
    SkillReward,
)
from tests.methods.control.test_iql import context as build_context
from tests.methods.control.test_iql import models, transitions

NAN = float("nan")
READER = SimpleNamespace(features=lambda observation: observation["state"])
"""A policy whose features are the state itself."""


def output(**extra):
    return PolicyOutput(torch.zeros(2, 1), torch.zeros(2, 1), extra=extra)


def masked(**columns):
    """Two rows, of which the second is outside of the mask."""
    return Batch(action_mask=torch.tensor([[True], [False]]), **columns)


def context(log=lambda metrics: None, **parts):
    return UpdateContext(parts, torch.zeros, lambda loss: None, log)


def test_metras_reward_is_the_change_along_the_skill():
    """With phi(s) = (x, y): (2, 3) . (0, 1) = 3 and (1, 0) . (1, 0) = 1, whose mean 2 is logged."""
    phi, logged = Representation(4, 2), {}
    phi.body = phi.head = torch.nn.Identity()
    batch = Batch(
        {
            "obs.state": torch.tensor([[1.0, 1, 0, 1], [0, 0, 1, 0]]),
            "next.state": torch.tensor([[3.0, 4, 0, 1], [1, 0, 1, 0]]),
            "past.state": torch.full((2, 4), 9.0),
        }
    )
    after = SkillReward()(batch, context(logged.update, policy=READER, representation=phi))
    assert after["reward"].tolist() == [3, 1] and float(logged["reward"]) == 2
    assert Representation(4, 1, (3,))(torch.zeros(2, 4)).shape == (2, 1)  # three numbers are read


def test_metras_losses_by_hand():
    """lambda = 3: -3 * .5 = -1.5 of the slack .5, and log 3 * .5 for the multiplier; each has one gradient."""
    multiplier = torch.tensor([math.log(3)], requires_grad=True)
    slack = torch.tensor([[0.5], [4.0]], requires_grad=True)
    out = output(skill_reward=torch.tensor([[2.0], [5.0]]), slack=slack, log_multiplier=multiplier)
    assert RepresentationLoss()(out, masked()).tolist() == [[-2], [0]]
    loss = ConstraintPenalty()(out, masked())
    assert_close(loss, torch.tensor([[-1.5], [0.0]]))
    loss.sum().backward()
    assert_close(slack.grad, torch.tensor([[-3.0], [0.0]]))
    assert multiplier.grad is None
    slack.grad = None
    loss = DualLoss()(out, masked())
    assert_close(loss, torch.tensor([[0.5 * math.log(3)], [0.0]]))
    loss.sum().backward()
    assert multiplier.grad.tolist() == [0.5] and slack.grad is None
    logged = DualLoss().metrics(out, masked())
    assert_close(logged["multiplier"], torch.full((2, 1), 3.0))
    assert logged["slack"].tolist() == [[0.5], [0]] and not any(each.requires_grad for each in logged.values())


def test_cqls_penalties_by_hand():
    """Gaps of two critics 3 - 1 and 4 - 1: 5 in all; 2 * 2 - 1 = 3 and 2 * 3 - 1 = 5 beyond the threshold.

    With alpha = 3 the critics lose 3 * (3 + 5) = 24, and the multiplier -3 * 4 = -12.
    """
    q_soft = torch.tensor([[[3.0, 4.0]], [[9.0, 9.0]]], requires_grad=True)
    q = torch.tensor([[[1.0, 1.0]], [[0.0, 0.0]]])
    out = output(q_soft=q_soft, q=q, log_multiplier=torch.tensor([math.log(3)], requires_grad=True))
    assert ConservativePenalty()(out, masked()).tolist() == [[5], [0]]
    assert_close(LagrangePenalty(1.0, 2.0)(out, masked()), torch.tensor([[24.0], [0.0]]))
    assert_close(ThresholdLoss(1.0, 2.0)(out, masked()), torch.tensor([[-12.0], [0.0]]))
    large = output(q_soft=q_soft, q=q, log_multiplier=torch.tensor([100.0], requires_grad=True))
    logged = ThresholdLoss(1.0, 2.0).metrics(large, masked())
    assert logged["alpha"].tolist() == [[LARGEST]] * 2 and logged["gap"].tolist() == [[4], [0]]
    assert not any(each.requires_grad for each in logged.values())
    assert LagrangeConservativeActions().gives() == {"q", "q_soft", "log_multiplier"}


def test_dqns_loss_and_target_by_hand():
    """Errors 2 and 0 of two critics: 1 * (2 - .5) = 1.5; a row outside of the mask has neither loss nor gradient."""
    q = torch.tensor([[[3.0, 1.0]], [[9.0, 9.0]]], requires_grad=True)
    loss = ClippedTDLoss()(output(q=q), masked(returns=torch.tensor([1.0, NAN])))
    assert loss.tolist() == [[1.5], [0]]
    loss.sum().backward()
    assert q.grad.tolist() == [[[1, 0]], [[0, 0]]]
    assert ClippedTDLoss().metrics(output(q=q), masked())["q"].tolist() == [[2], [0]]
    assert QLearningTarget().models() == {"target_policy"}
    assert QLearningTarget(double=True).models() == {"policy", "target_policy"}


@pytest.mark.parametrize(("phase", "value"), [(QLearningTarget(), 4.0), (ValueTarget(), 3.0)])
def test_targets_read_the_next_observation_alone(phase, value):
    """1 + .5 * max(2, 6) = 4 of Q-values, and 1 + .5 * 4 = 3 of the value that is the mean."""
    states = {"next.state": torch.tensor([[2.0, 6.0]]), "past.state": torch.full((1, 2), 99.0)}
    batch = Batch(states, reward=torch.tensor([1.0]), discount=torch.tensor([0.5]))
    network = SimpleNamespace(legal_q_values=lambda observation: observation["state"], features=READER.features)
    parts = {"policy": network, "target_policy": network, "value": lambda features: features.mean(1, keepdim=True)}
    assert phase(batch, context(**parts))["returns"].tolist() == [[value]]


def test_iqls_value_learns_the_smaller_critic():
    """Errors 1 - 0 above: .7 * 1; the critics have no gradient, and a row outside of the mask has no loss."""
    q = torch.tensor([[[3.0, 1.0]], [[9.0, 9.0]]], requires_grad=True)
    v = torch.tensor([[0.0], [5.0]], requires_grad=True)
    loss = ExpectileLoss(0.7)(output(q=q, v=v), masked())
    assert_close(loss, torch.tensor([[0.7], [0.0]]))
    loss.sum().backward()
    assert q.grad is None and v.grad[:, 0].tolist() == pytest.approx([-1.4, 0])
    assert ExpectileLoss().metrics(output(v=v), masked())["v"].tolist() == [[0], [0]]
    parts = models()
    out = ReplayedValues()(transitions(2), build_context(parts))
    out.extra["v"].sum().backward()
    assert any(parameter.grad is not None for parameter in parts["value"].parameters())
