"""ICVF: values by hand and bilinear, errors and losses by hand, and which networks are trained."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.learners.phases.base import UpdateContext
from mmrl.methods.goals.hilp import TemporalDistanceLoss
from mmrl.methods.goals.v_ptr.values import IntentErrors, IntentValues, MultilinearValue, find_encoder
from mmrl.policies.control.actor import SquashedPolicy


class Eye(torch.nn.Module):
    """A policy whose picture encoder gives the first pixel."""

    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Module()
        self.encoder.image_encoder = torch.nn.Flatten()


class Table(torch.nn.Module):
    """V_k(s, g, z) of pictures of one pixel."""

    def __init__(self, entries):
        super().__init__()
        self.entries = entries

    def forward(self, states, outcomes, intents):
        keys = zip(*(each[:, 0].tolist() for each in (states, outcomes, intents)))
        return torch.tensor([self.entries[key] for key in keys])


def context(**models):
    return UpdateContext(models, torch.zeros, lambda loss: None, lambda metrics: None)


def transition(outcome, intent, reward, discount, intent_reward, intent_discount):
    """From picture 0 to picture 1."""
    pictures = {"obs.image": 0, "next.image": 1, "obs.outcome": outcome, "obs.intent": intent}
    numbers = {"reward": reward, "discount": discount, "intent_reward": intent_reward}
    return Batch(
        {name: torch.full((1, 1, 1), value) for name, value in pictures.items()},
        **{name: torch.tensor([value]) for name, value in numbers.items()},
        intent_discount=torch.tensor([intent_discount]),
        action_mask=torch.ones(1, 1, dtype=torch.bool),
    )


def find_errors(batch, values, targets):
    models = {"policy": Eye(), "target_policy": Eye(), "intents": Table(values), "target_intents": Table(targets)}
    return IntentErrors()(batch, context(**models))


@pytest.mark.parametrize(("after", "advantage", "loss"), [(-1.5, 0.515, 0.00144), (-2.5, -0.475, 0.00016)])
def test_errors_and_loss_by_hand(after, advantage, loss):
    """V(s, g, z) = -5, V'(s', g, z) = -4, gamma .99: e = -1 - 3.96 + 5 = .04 of one value, tau .9.

    V'(s, z, z) = -3 and V'(s', z, z) = -1.5: A = -1 - 1.485 + 3 = .515, .9 * .0016 = .00144; with -2.5
    A = -1 - 2.475 + 3 = -.475, .1 * .0016 = .00016.
    """
    batch = transition(2, 3, -1.0, 0.99, -1.0, 0.99)
    targets = {(1, 2, 3): [-4.0], (0, 3, 3): [-3.0], (1, 3, 3): [after]}
    out = find_errors(batch, {(0, 2, 3): [-5.0]}, targets)
    assert_close(out.extra["temporal_errors"], torch.tensor([[[0.04]]]), atol=1e-6, rtol=0)
    assert_close(out.extra["temporal_advantage"], torch.tensor([[advantage]]), atol=1e-6, rtol=0)
    assert_close(TemporalDistanceLoss(0.9)(out, batch), torch.tensor([[loss]]), atol=1e-7, rtol=1e-3)


def test_the_goal_itself_by_hand():
    """Where s is outcome and intent: V = -.2 and V' = -.1, so e = .2, A = .1, and .9 * .04 = .036."""
    batch = transition(0, 0, 0.0, 0.0, 0.0, 0.0)
    out = find_errors(batch, {(0, 0, 0): [-0.2]}, {(1, 0, 0): [-7.0], (0, 0, 0): [-0.1]})
    assert_close(TemporalDistanceLoss(0.9)(out, batch), torch.tensor([[0.036]]))
    assert_close(out.extra["temporal_advantage"], torch.tensor([[0.1]]))


def test_the_smaller_target_and_the_mean_one_make_the_advantage():
    """min(-2, -4) = -4 after the step and the mean of -3 and -6 before it: A = -1 - .5 * 4 + 4.5 = 1.5."""
    batch = transition(2, 3, -1.0, 0.5, -1.0, 0.5)
    targets = {(1, 2, 3): [-1.0, -2.0], (0, 3, 3): [-3.0, -6.0], (1, 3, 3): [-2.0, -4.0]}
    out = find_errors(batch, {(0, 2, 3): [-1.0, -1.0]}, targets)
    assert_close(out.extra["temporal_advantage"], torch.tensor([[1.5]]))
    assert_close(out.extra["temporal_errors"], torch.tensor([[[-0.5, -1.0]]]))


def test_the_multilinear_value_by_hand_and_linear():
    """phi(s) = s, psi(g) = g, T = 2 * psi(z), A and B the identity, s = (1, 2), g = (3, 1), z = (1, -1):
    T = (2, -2), T phi = (2, -4), T psi = (6, -2), their product 12 + 8 = 20. It is linear in phi and in psi.
    """
    value = MultilinearValue(2, 2, 4)
    value.phi = value.psi = torch.nn.Identity()
    value.intent = torch.nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        for layer, factor in ((value.intent, 2.0), (value.state_proj, 1.0), (value.outcome_proj, 1.0)):
            layer.weight.copy_(factor * torch.eye(2))
        s, g, z = (torch.tensor([row]) for row in ([1.0, 2.0], [3.0, 1.0], [1.0, -1.0]))
        assert_close(value(s, g, z), torch.tensor([20.0]))
        for layer in (value.state_proj, value.outcome_proj):
            layer.weight.normal_()
        other = torch.tensor([[-0.5, 4.0]])
        assert_close(value(s + other, g, z), value(s, g, z) + value(other, g, z))
        assert_close(value(s, 2 * g + other, z), 2 * value(s, g, z) + value(s, other, z))


def test_the_encoder_learns_and_targets_do_not():
    torch.manual_seed(0)
    policy, target = (SquashedPolicy(None, 2, image_size=20, image_features=6, hidden=[4]) for _ in range(2))
    values, target_values = (IntentValues(6, dims=4, hidden=8) for _ in range(2))
    pictures = ("obs.image", "next.image", "obs.outcome", "obs.intent")
    batch = Batch(
        {name: torch.randint(255, (5, 20, 20, 3), dtype=torch.uint8) for name in pictures},
        **{name: -torch.ones(5) for name in ("reward", "discount", "intent_reward", "intent_discount")},
    )
    models = {"policy": policy, "target_policy": target, "intents": values, "target_intents": target_values}
    out = IntentErrors()(batch, context(**models))
    assert out.extra["temporal_errors"].shape == (5, 1, 2) and not out.extra["temporal_advantage"].requires_grad
    out.extra["temporal_errors"].square().sum().backward()
    assert all(weight.grad.abs().sum() > 0 for weight in policy.encoder.parameters())
    assert all(weight.grad is None for weight in (*target.parameters(), *target_values.parameters()))


def test_refusals():
    with pytest.raises(ValueError, match=r"set policy\.image_size"):
        find_encoder(SquashedPolicy(3, 2))
    with pytest.raises(ValueError, match="count"):
        IntentValues(6, count=0)


def test_a_value_has_the_gradient_of_differences_in_its_intent():
    torch.manual_seed(0)
    value = MultilinearValue(3, 2, 4).double()
    states, outcomes, intents = (torch.randn(2, 3, dtype=torch.double, requires_grad=True) for _ in range(3))
    assert torch.autograd.gradcheck(value, (states, outcomes, intents))
