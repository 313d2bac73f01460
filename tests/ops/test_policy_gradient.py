"""Ratios per choice, per sequence and joint; the surrogate; truncated and masked ratios; KL estimates."""

import math

import pytest
import torch
from torch.distributions import Categorical, kl_divergence
from torch.testing import assert_close

from mmrl.ops.policy_gradient import (
    MAX_LOG_RATIO,
    cispo,
    clipped_surrogate,
    divergence,
    is_clipped,
    log_ratio,
    mask_ratio,
    sapo,
    truncate_ratio,
)

D = torch.tensor([[0.2, -0.1, 0.3, 0.0]])


ALL = torch.ones(1, 4).bool()


@pytest.mark.parametrize(
    "level, expected",
    [("token", [0.2, -0.1, 0.3, 0.0]), ("sequence", [0.1] * 4), ("joint", [0.4] * 4)],  # sum 0.4, mean 0.1
)
def test_levels(level, expected):
    assert_close(log_ratio(D, torch.zeros(1, 4), ALL, level), torch.tensor([expected]))
    # equal log-probs: ratio exactly 1
    assert (log_ratio(D, D, ALL, level).exp() == 1).all()


@pytest.mark.parametrize(
    "level, expected", [("token", [0.2, 0, 0.3, 0]), ("sequence", [0.25, 0, 0.25, 0]), ("joint", [0.5, 0, 0.5, 0])]
)
def test_choices_outside_the_mask_take_no_part(level, expected):
    mask = torch.tensor([[True, False, True, False]])
    old = torch.where(mask, 0.0, torch.nan)
    assert_close(log_ratio(D, old, mask, level), torch.tensor([expected]))
    assert_close(log_ratio(D, old, ~ALL, level), torch.zeros(1, 4))


def test_gradient_of_the_row_levels():
    # d exp(mean d) / d d_t = s / T and d exp(sum d) / d d_t = r, for each of the T broadcast copies
    for level, share in (("sequence", math.exp(0.1) / 4), ("joint", math.exp(0.4))):
        d = D.clone().requires_grad_()
        log_ratio(d, torch.zeros(1, 4), ALL, level).exp()[0, 0].backward()
        assert_close(d.grad, torch.full((1, 4), share))


def test_held_finite():
    d = torch.tensor([[500.0, -500.0]], requires_grad=True)
    ratio = log_ratio(d, torch.zeros(1, 2), torch.ones(1, 2).bool()).exp()
    assert_close(ratio, torch.tensor([[math.exp(MAX_LOG_RATIO), math.exp(-MAX_LOG_RATIO)]]))
    ratio.sum().backward()
    assert (d.grad == 0).all()


def test_unknown_level():
    with pytest.raises(ValueError, match="sequence"):
        log_ratio(D, D, ALL, "word")


def surrogate(ratio, advantage, clip_low=0.2, clip_high=0.2, clip_dual=None):
    return clipped_surrogate(torch.tensor(ratio), torch.tensor(advantage), clip_low, clip_high, clip_dual).item()


@pytest.mark.parametrize(
    "ratio, advantage, loss",
    [
        (1.3, 1.0, -1.2),  # gain held at 1 + clip_high
        (0.7, -1.0, 0.8),  # loss held at 1 - clip_low
        (0.7, 1.0, -0.7),  # the pessimistic side is open
        (1.3, -1.0, 1.3),
        (1.0, 2.0, -2.0),
    ],
)
def test_clipped_surrogate(ratio, advantage, loss):
    assert surrogate(ratio, advantage) == pytest.approx(loss)


def test_dual_bounds_only_bad_choices():
    assert surrogate(5.0, -1.0) == pytest.approx(5.0)
    assert surrogate(5.0, -1.0, clip_dual=3.0) == pytest.approx(3.0)
    assert surrogate(2.0, -1.0, clip_dual=3.0) == pytest.approx(2.0)
    assert surrogate(5.0, 1.0, clip_dual=3.0) == pytest.approx(-1.2)


def test_mean_over_the_policys_own_choices():
    # ratios 1.1, 1.3 -> 1.2, 0.9 inside the mask: (1.1 + 1.2 + 0.9) / 3
    ratio = torch.tensor([1.1, 1.3, 5.0, 0.2, 0.9])
    mask = torch.tensor([1, 1, 0, 0, 1]).bool()
    loss = clipped_surrogate(ratio, torch.ones(5), 0.2, 0.2)
    assert loss[mask].mean().item() == pytest.approx(-1.066667, abs=1e-6)
    assert loss.mean().item() == pytest.approx(-0.92)


def test_sequence_ratio_with_tight_bounds():
    # log-ratios average 0.1: s = 1.105171; at A = 1 held at 1.0004, at A = -1 open
    s = log_ratio(D, torch.zeros(1, 4), ALL, "sequence").exp()
    good, bad = torch.ones(1, 4), -torch.ones(1, 4)
    assert_close(clipped_surrogate(s, good, 3e-4, 4e-4), torch.full((1, 4), -1.0004))
    assert_close(clipped_surrogate(s, bad, 3e-4, 4e-4), torch.full((1, 4), 1.105171), atol=1e-6, rtol=0)


def test_leave_one_out_with_clipped_ratios():
    # advantages 2/3, -2/3, 0, 0 at ratios 1.5, 0.5, 1, 1: terms 0.8, -0.5333, 0, 0; their mean is 0.0667
    ratio, advantage = torch.tensor([1.5, 0.5, 1, 1]), torch.tensor([2 / 3, -2 / 3, 0, 0])
    loss = clipped_surrogate(ratio, advantage, 0.2, 0.2)
    assert_close(loss, torch.tensor([-0.8, 0.533333, 0, 0]), atol=1e-6, rtol=0)
    assert loss.mean().item() == pytest.approx(-0.066667, abs=1e-6)


@pytest.mark.parametrize("clip_dual", [None, 3.0])
def test_clipped_says_where_the_gradient_is_zero(clip_dual):
    ratio = torch.linspace(0.05, 4, 80).requires_grad_()
    for sign in (-1.0, 1.0):
        advantages = torch.full((80,), sign)
        slope = torch.autograd.grad(clipped_surrogate(ratio, advantages, 0.2, 0.28, clip_dual).sum(), ratio)[0]
        assert torch.equal(slope == 0, is_clipped(ratio, advantages, 0.2, 0.28, clip_dual))


RATIO = torch.tensor([[0.25, 0.5, 1.0], [2.0, 4.0, torch.nan]])


MASK = torch.tensor([[True, True, True], [True, True, False]])


def test_truncated_is_the_smaller_one():
    assert_close(truncate_ratio(RATIO, MASK, 2.0), torch.tensor([[0.25, 0.5, 1.0], [2.0, 2.0, 0.0]]), rtol=0, atol=0)


def test_within_keeps_the_bounds_and_drops_what_is_beyond():
    assert_close(mask_ratio(RATIO, MASK, 0.5, 2.0), torch.tensor([[0.0, 0.5, 1.0], [2.0, 0.0, 0.0]]), rtol=0, atol=0)


@pytest.mark.parametrize("bounded", [lambda r, m: truncate_ratio(r, m, 1e9), lambda r, m: mask_ratio(r, m, 0.0, 1e9)])
def test_open_bounds_change_nothing(bounded):
    assert_close(bounded(RATIO, MASK)[MASK], RATIO[MASK], rtol=0, atol=0)


@pytest.mark.parametrize("clip_low, weights", [(None, [0.5, 5.0]), (0.2, [0.8, 5.0])])
def test_cispo_clips_the_weight_and_keeps_the_gradient_of_every_choice(clip_low, weights):
    logprobs = torch.tensor([-1.0, -0.5], requires_grad=True)
    loss = cispo(logprobs, torch.tensor([0.5, 8.0]), torch.tensor([1.0, -2.0]), clip_low, 4.0)
    assert_close(loss, torch.tensor([weights[0], -weights[1]]))  # -w A logprob
    assert_close(torch.autograd.grad(loss.sum(), logprobs)[0], torch.tensor([-weights[0], 2 * weights[1]]))


def test_sapo_by_hand():
    # -1 * 4 sigmoid(0.5) = -4 * 0.622459; 2 * (4 / 2) sigmoid(2 * -0.5) = 4 * 0.268941
    loss = sapo(torch.tensor([1.5, 0.5]), torch.tensor([1.0, -2.0]), 1.0, 2.0)
    assert_close(loss, torch.tensor([-2.489837, 1.075766]), atol=1e-6, rtol=0)


def test_the_gate_of_sapo_is_open_at_ratio_one_and_closes_on_both_sides():
    # slope -A 4 s (1 - s), s = sigmoid(tau (r - 1)): at tau 1 and r = 3 s = 0.880797, so 0.419974; at tau 2 0.070651
    ratio = torch.tensor([1.0, 1.0, 3.0, 3.0], requires_grad=True)
    sapo(ratio, torch.tensor([1.0, -2.0, 1.0, -1.0]), 1.0, 2.0).sum().backward()
    assert_close(ratio.grad, torch.tensor([-1.0, 2.0, -0.419974, 0.070651]), atol=1e-6, rtol=0)


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
    assert_close(out[0].item(), math.exp(MAX_LOG_RATIO) - 1 - MAX_LOG_RATIO)
    out.sum().backward()
    assert logprobs.grad[0] == 0 and logprobs.grad[1] < 0  # minimising raises the log-probability


def test_unknown_estimator():
    with pytest.raises(ValueError, match="k3"):
        divergence(torch.zeros(1), torch.zeros(1), "k4")
