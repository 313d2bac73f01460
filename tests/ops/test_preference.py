import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.ops.preference import bradley_terry_loss, hinge_loss, ipo_loss, kto_loss, log_odds, paired_margin


def test_logistic_by_hand():
    # log(1 + e^-1.2) = log(1.301194); log 2; 1.2 + the first
    margins = torch.tensor([1.2, 0.0, -1.2])
    assert_close(bradley_terry_loss(margins), torch.tensor([0.263282, 0.693147, 1.463282]), atol=1e-6, rtol=0)
    # log-ratios 2 and -3 at beta 0.1: margin 0.5, log(1 + e^-0.5) = 0.474077; smoothed by 0.1: + 0.1 * 0.5
    margin = torch.tensor([0.1 * (2 - -3)])
    assert_close(bradley_terry_loss(margin), torch.tensor([0.474077]), atol=1e-6, rtol=0)
    assert_close(bradley_terry_loss(margin, 0.1), torch.tensor([0.524077]), atol=1e-6, rtol=0)


def test_the_weight_of_a_pair_is_how_wrong_it_is():
    # d loss / d log-ratio = -beta sigmoid(-beta m): log-ratios 1 and -1 at beta 0.1 give 0.1 * sigmoid(-0.2) = 0.045017
    ratio = torch.tensor([1.0, -1.0], requires_grad=True)
    bradley_terry_loss(0.1 * (ratio[:1] - ratio[1:])).sum().backward()
    assert_close(ratio.grad, torch.tensor([-0.045017, 0.045017]), atol=1e-6, rtol=0)


def test_where_the_losses_are_least():
    smoothed = torch.tensor([math.log(0.9 / 0.1)], requires_grad=True)
    bradley_terry_loss(smoothed, 0.1).sum().backward()
    assert smoothed.grad.abs().item() < 1e-6
    assert_close(ipo_loss(torch.tensor([5.0, 4.0, 7.0]), 5.0), torch.tensor([0.0, 1.0, 4.0]))
    assert_close(hinge_loss(torch.tensor([0.25, 1.0, 3.0])), torch.tensor([0.75, 0.0, 0.0]))


def test_kto_by_hand():
    # beta 0.1, log-ratio 2, z0 0.5: sigmoid(0.15) = 0.537430; an undesirable row has the rest
    loss = kto_loss(torch.tensor([2.0, 2.0]), torch.tensor([1.0, -1.0]), torch.tensor([0.5, 0.5]), 0.1)
    assert_close(loss, torch.tensor([0.462570, 0.537430]), atol=1e-6, rtol=0)


def test_log_odds_by_hand():
    # p = 0.8, 0.5: odds 4 and 1; a certain completion has finite odds and no gradient
    logprob = torch.tensor([0.8, 0.5, 1.0]).log().requires_grad_()
    odds = log_odds(logprob)
    assert_close(odds[:2], torch.tensor([math.log(4), 0.0]), atol=1e-6, rtol=0)
    odds.sum().backward()
    # d/dl (l - log(1 - e^l)) = 1 / (1 - p)
    assert_close(logprob.grad, torch.tensor([5.0, 2.0, 0.0]))
    assert odds.isfinite().all()


def test_a_margin_is_of_its_group_and_ignores_the_undecided():
    value, sign = torch.tensor([3.0, 1.0, torch.nan, 4.0, 6.0]), torch.tensor([1.0, -1.0, 0.0, -1.0, 1.0])
    margin = paired_margin(value, sign, torch.tensor([7, 7, 7, 2, 2]))
    assert_close(margin, torch.tensor([2.0, 2.0, 2.0, 2.0, 2.0]))


@pytest.mark.parametrize("margin", [-200.0, 200.0])
def test_far_margins_stay_finite(margin):
    assert bradley_terry_loss(torch.tensor([margin]), 0.1).isfinite().all()
