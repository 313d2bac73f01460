"""Estimators of the Kullback-Leibler divergence: values, expectations and expected gradients."""

import math

import pytest
import torch
from torch.distributions import Categorical, kl_divergence
from torch.testing import assert_close

from mmrl.ops.divergence import LIMIT, divergence


@pytest.mark.parametrize("estimator, value", [("k1", 0.3), ("k2", 0.045), ("k3", math.exp(-0.3) - 0.7)])
def test_hand_computed(estimator, value):
    # logprobs -1, reference -1.3: d = -0.3
    out = divergence(torch.tensor([-1.0]), torch.tensor([-1.3]), estimator)
    assert_close(out, torch.tensor([value]))
    assert divergence(torch.tensor([-1.0]), torch.tensor([-1.0]), estimator) == 0


def test_golden_k3():
    assert divergence(torch.tensor(0.0), torch.tensor(-0.3), "k3").item() == pytest.approx(0.040818, abs=1e-6)
    # p = .8 against .4: d = -log 2, 1/2 - 1 + log 2
    assert divergence(torch.tensor(0.8).log(), torch.tensor(0.4).log(), "k3").item() == pytest.approx(
        0.193147, abs=1e-6
    )


def enumerated(estimator):
    """Exact expectation over the choices, and the expected gradient of the estimate itself."""
    logits = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=torch.float64, requires_grad=True)
    reference = Categorical(logits=torch.tensor([-0.5, 0.2, 0.4, 1.0], dtype=torch.float64))
    policy = Categorical(logits=logits)
    estimate = divergence(policy.logits, reference.logits, estimator)
    probs = policy.probs.detach()
    grad = torch.autograd.grad((probs * estimate).sum(), logits, retain_graph=True)[0]
    return logits, policy, reference, (probs * estimate).sum(), grad


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_unbiased(estimator):
    _, policy, reference, mean, _ = enumerated(estimator)
    assert_close(mean, kl_divergence(policy, reference))


def test_expected_gradients():
    assert_close(enumerated("k1")[4], torch.zeros(4, dtype=torch.float64), atol=1e-12, rtol=0)
    logits, policy, reference, _, grad = enumerated("k2")
    assert_close(grad, torch.autograd.grad(kl_divergence(policy, reference), logits)[0])
    logits, policy, reference, _, grad = enumerated("k3")
    assert_close(grad, torch.autograd.grad(kl_divergence(reference, policy), logits)[0])


def test_held_finite_without_turning_the_gradient():
    logprobs = torch.tensor([-200.0, -19.0], requires_grad=True)
    out = divergence(logprobs, torch.zeros(2), "k3")
    assert_close(out[0].item(), math.exp(LIMIT) - 1 - LIMIT)
    out.sum().backward()
    assert logprobs.grad[0] == 0 and logprobs.grad[1] < 0  # minimising raises the log-probability


def test_unknown_estimator():
    with pytest.raises(ValueError, match="k3"):
        divergence(torch.zeros(1), torch.zeros(1), "k4")
