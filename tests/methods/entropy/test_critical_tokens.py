"""KL penalty weighted by the certainty of the reference, by hand."""

import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.methods.entropy.critical_tokens import (
    Certainty,
    CertaintyWeights,
    certainty,
    certainty_weights,
)
from mmrl.objectives.regularizer import KL
from mmrl.objectives.weighted_kl import WeightedKL
from tests.laws.example import Example

LAWS = [Example(CertaintyWeights(power=2.0, intercept=-0.1, rows=3), scores=True)]


def distribution(top, size=16):
    """Logits [1, 1, V] of a distribution whose most likely id has this probability."""
    rest = math.log((1 - top) / (size - 1)) if top < 1 else -1e9
    return torch.tensor([[[math.log(top), *[rest] * (size - 1)]]], dtype=torch.float64)


def test_by_hand():
    # 16 ids: log 16 = 2.772589; at .99 c = 1 - .010050 / 2.772589 = .996375, and c^150 = .580003
    for top, weight in ((1.0, 1.0), (0.999, 0.947301), (0.99, 0.580003), (0.9, 0.002994), (0.5, 1.8e-19)):
        sure = certainty(distribution(top))
        assert_close(certainty_weights(sure, 150.0), torch.tensor([[weight]]).double(), atol=1e-6, rtol=1e-2)
    assert_close(certainty(torch.zeros(1, 1, 16)), torch.zeros(1, 1), atol=1e-6, rtol=0)
    # b = -.5: 1.5 c - .5
    assert_close(certainty_weights(torch.tensor([1.0, 0.5]), 1.0, -0.5), torch.tensor([1.0, 0.25]))


def test_the_reference_has_a_temperature_of_its_own():
    logits = torch.tensor([[[2.0, 0.0, 0.0]]])
    own = Certainty(temperature=4.0)(logits, torch.tensor([2.0]))
    assert_close(own, certainty(logits / 4))
    assert_close(Certainty()(logits, torch.tensor([2.0])), certainty(logits / 2))
    assert not Certainty()(logits.requires_grad_(), torch.tensor([2.0])).requires_grad


def test_the_penalty_by_hand():
    # p = .3 against .9: k2 = log(3)^2 / 2 = .603474; weighted by .002994: .001807
    new, reference = torch.tensor([[0.3, 0.3]]).log().requires_grad_(), torch.tensor([[0.9, 0.9]]).log()
    weights = certainty_weights(certainty(distribution(0.9)), 150.0).float()
    batch = Batch(
        action_mask=torch.ones(1, 2).bool(),
        ref_logprobs=reference,
        kl_weights=torch.cat([weights, torch.ones(1, 1)], 1),
    )
    out = PolicyOutput(new, new.detach())
    loss = WeightedKL("k2")(out, batch)
    assert_close(loss, torch.tensor([[0.001807, 0.603474]]), atol=1e-6, rtol=0)
    assert_close(loss[:, 1:], KL("k2")(out, batch)[:, 1:])  # a weight of 1 is the plain penalty
    # d k2 / d log p = log p - log p_ref = -log 3, times the weight
    loss.sum().backward()
    assert_close(new.grad, -math.log(3) * torch.cat([weights, torch.ones(1, 1)], 1))


def test_settings_are_checked():
    with pytest.raises(ValueError, match=r"intercept must be in \(-inf, 0\]"):
        CertaintyWeights(intercept=0.1)
