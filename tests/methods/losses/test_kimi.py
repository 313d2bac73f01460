"""Kimi k1.5's squared mirror-descent loss by hand."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.methods.losses.kimi import MirrorDescentLoss, mirror_descent_loss
from tests.laws.example import Example

LAWS = [Example(MirrorDescentLoss(0.5, baseline)) for baseline in ("mean", "log_mean_exp")]

REWARD, GROUP, ALL = torch.tensor([1.0, 1, 0, 0]), torch.zeros(4, dtype=torch.long), torch.ones(4).bool()
RATIO = torch.tensor([0.2, 0.0, -0.1, 0.0])


def test_by_hand():
    # tau .5, mean reward .5: (1 - .5 - .1)^2, .5^2, (-.5 + .05)^2, .5^2 = .16, .25, .2025, .25, over 2 tau = 1
    out = mirror_descent_loss(RATIO, REWARD, GROUP, ALL, 0.5)
    assert_close(out, torch.tensor([0.16, 0.25, 0.2025, 0.25]))
    assert_close(out.mean(), torch.tensor(0.215625))
    # tau log((2 e^2 + 2) / 4) = .5 log(4.194528) = .716890
    exact = mirror_descent_loss(torch.zeros(4), REWARD, GROUP, ALL, 0.5, "log_mean_exp")
    assert_close(exact, (REWARD - 0.716890).square())


@pytest.mark.parametrize("tau", [0.1, 0.5, 2.0])
def test_its_gradient_is_the_papers(tau):
    """-(r - mean) d log pi + tau / 2 d log_ratio^2, of which the mean over the group is taken."""
    ratio = RATIO.clone().requires_grad_()
    mirror_descent_loss(ratio, REWARD, GROUP, ALL, tau).sum().backward()
    assert_close(ratio.grad, -(REWARD - 0.5) + tau * RATIO)


def test_the_mean_is_the_limit_of_a_large_tau():
    """tau log mean exp(r / tau) = mean + variance / (2 tau) + ..., 1/4 / 2000 here."""
    near, mean = (mirror_descent_loss(RATIO, REWARD, GROUP, ALL, 1e3, b) for b in ("log_mean_exp", "mean"))
    assert_close(near, mean, atol=1e-6, rtol=1e-5)


def test_groups_are_apart_and_rows_without_a_choice_are_not_counted():
    reward, group = torch.cat([REWARD, REWARD - 1000]), torch.arange(8) // 4
    ratio, counted = RATIO.repeat(2), torch.ones(8).bool()
    for baseline in ("mean", "log_mean_exp"):
        out = mirror_descent_loss(ratio, reward, group, counted, 0.5, baseline)
        assert_close(out[:4], out[4:], atol=1e-3, rtol=1e-3)
    counted[3] = False
    out = mirror_descent_loss(ratio, reward, group, counted, 0.5)
    assert_close(out[1], torch.tensor((1 - 2 / 3) ** 2))


@pytest.mark.parametrize("reward_without_choice", [5.0, 100.0])
@pytest.mark.parametrize(
    # of rewards 1, 1, 0: the mean is 2/3, and .5 log((2 e^2 + 1) / 3) = .830006; log-ratios .2, 0 and -.1, tau .5:
    # (1/3 - .1)^2, (1/3)^2, (-2/3 + .05)^2 and (.169994 - .1)^2, .169994^2, (-.830006 + .05)^2, over 2 tau = 1
    ("baseline", "expected"),
    [("mean", [0.054444, 0.111111, 0.0, 0.380278]), ("log_mean_exp", [0.004899, 0.028898, 0.0, 0.608409])],
)
def test_what_was_not_chosen_does_not_count(baseline, expected, reward_without_choice):
    """Choices outside the mask, and a row without a choice, however large its reward; a group of such rows alone."""
    logprobs = torch.tensor([[0.1, 0.1], [0.0, 9.0], [5.0, 5.0], [-0.1, 7.0], [3.0, 3.0]], requires_grad=True)
    batch = Batch(
        action_mask=torch.tensor([[1, 1], [1, 0], [0, 0], [1, 0], [0, 0]]).bool(),
        group=torch.tensor([0, 0, 0, 0, 1]),
        episode_reward=torch.tensor([1.0, 1.0, reward_without_choice, 0.0, 1.0]),
        behavior_logprobs=torch.zeros(5, 2),
    )
    loss = MirrorDescentLoss(0.5, baseline)(PolicyOutput(logprobs, logprobs.detach()), batch)
    assert_close(loss, torch.tensor([*expected, 0.0]), atol=1e-5, rtol=0)
    loss.sum().backward()
    assert logprobs.grad.isfinite().all()


def test_tau_has_to_be_positive():
    with pytest.raises(ValueError, match="tau must be > 0"):
        MirrorDescentLoss(0.0)
