"""Offline policy gradient on whole answers, by hand."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput, Sampling
from mmrl.methods.offline.a_lol import KeepPositive, OfflinePolicyGradient
from mmrl.objectives.policy import CISPO, PolicyGradient
from tests.laws.example import Example

LAWS = [
    Example(OfflinePolicyGradient()),
    Example(OfflinePolicyGradient(None)),
]


def loss(term, pi, reference, advantage=0.3):
    logprobs = torch.tensor([pi]).log().requires_grad_()
    mask = torch.ones_like(logprobs).bool()
    old = torch.tensor([reference]).log()
    batch = Batch(action_mask=mask, advantages=torch.full_like(old, advantage), behavior_logprobs=old)
    total = term(PolicyOutput(logprobs, logprobs.detach()), batch).sum()
    total.backward()
    return total.item(), logprobs.grad[0].tolist()


def test_ratios_by_hand():
    pi, reference = [0.5, 0.4], [0.4, 0.5]
    # .5 * .4 = .4 * .5, a ratio of 1: -.3 (ln .5 + ln .4) = .3 * 1.609438
    value, gradient = loss(OfflinePolicyGradient(), pi, reference)
    assert value == pytest.approx(0.482831, abs=1e-6) and gradient == pytest.approx([-0.3, -0.3])
    assert loss(PolicyGradient(), pi, reference)[0] == pytest.approx(0.482831, abs=1e-6)
    # ratios of tokens 1.25 and .8: .3 (1.25 * .693147 + .8 * .916291)
    assert loss(CISPO(0.9, 0.9), pi, reference)[0] == pytest.approx(0.479840, abs=1e-6)
    # .36 / .2 = 1.8, within the clip: .3 * 1.8 * 2 * .510826; the ratio has no gradient
    value, gradient = loss(OfflinePolicyGradient(), [0.6, 0.6], reference)
    assert value == pytest.approx(0.551692, abs=1e-6) and gradient == pytest.approx([-0.54, -0.54])


def test_what_was_not_chosen_does_not_count():
    # .6 / .4 = 1.5 of the first choice alone: 1.5 * .3 * .510826 = .229872
    logprobs, old = torch.tensor([[0.6, torch.nan]]).log(), torch.tensor([[0.4, torch.nan]]).log()
    batch = Batch(
        action_mask=torch.tensor([[True, False]]), advantages=torch.tensor([[0.3, 0.3]]), behavior_logprobs=old
    )
    loss = OfflinePolicyGradient()(PolicyOutput(logprobs, logprobs), batch)
    assert_close(loss, torch.tensor([[0.229872, 0.0]]), atol=1e-6, rtol=0)


def test_the_ratio_is_clipped():
    # .6 / .2 = 3 is clipped at 1.9 and .002 / .2 = .01 at .1
    for pi, clip, ratio in ((0.6, 0.9, 1.9), (0.6, None, 3.0), (0.002, 0.9, 0.1), (0.6, 0.5, 1.5)):
        gradient = loss(OfflinePolicyGradient(clip), [pi], [0.2])[1]
        assert gradient == pytest.approx([-0.3 * ratio])
    with pytest.raises(ValueError, match=r"clip must be in \(0, 1\]"):
        OfflinePolicyGradient(1.5)


def test_rows_without_a_positive_advantage_are_left_out():
    mask = torch.tensor([[True, True], [True, False], [True, True], [True, True]])
    advantages = torch.tensor([[0.5, 0.5], [-0.5, 9.0], [0.0, 0.0], [0.1, 0.1]])
    batch = Batch(action_mask=mask, advantages=advantages, row_seed=torch.arange(4))
    kept = KeepPositive()(batch, Context(None, None, None, Sampling(), seed=0, iteration=0))
    assert_close(kept["row_seed"], torch.tensor([0, 3]))
