"""Regression of step log-ratios on advantages, by hand and at its optimum."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.methods.advantages.direct_advantage import StepRegression, step_ends, step_log_ratio


def rows(log_ratio, values, segment, reward, mask=None):
    """Rows whose policy has these log-ratios to the sampling one."""
    old = torch.full_like(log_ratio, -2.0)
    new = (old + log_ratio).requires_grad_()
    batch = Batch(
        action_mask=torch.ones(log_ratio.shape).bool() if mask is None else mask,
        values=values, segment=segment, reward=reward, behavior_logprobs=old,
    )  # fmt: skip
    return PolicyOutput(new, new.detach()), batch


def test_by_hand():
    # steps of 2, 1 and 1 tokens with log-ratios .2 + .3, -.2 and 0, and advantages .02, -.05 and 0: at beta .05
    # (.4 - .5)^2 / 2 = .005, (-1 + .2)^2 / 2 = .32, 0; the mean of the steps is .108333
    values = torch.tensor([[0.5, 0.5, 0.52, 0.47]])
    log_ratio, segment = torch.tensor([[0.2, 0.3, -0.2, 0.0]]), torch.tensor([[0, 0, 1, 2]])
    out, batch = rows(log_ratio, values, segment, torch.tensor([0.47]))
    loss = StepRegression(0.05)(out, batch)
    assert_close(loss, torch.tensor([[0.0, 0.005, 0.32, 0.0]]), atol=1e-6, rtol=0)
    assert_close(loss.sum() / 3, torch.tensor(0.108333), atol=1e-6, rtol=0)
    # every token of a step has the same gradient: d - A / beta
    loss.sum().backward()
    assert_close(out.logprobs.grad, torch.tensor([[0.1, 0.1, 0.8, 0.0]]), atol=1e-6, rtol=0)
    assert_close(StepRegression().metrics(out, batch)["log_ratio"], torch.tensor([[0.0, 0.5, -0.2, 0.0]]))


def test_forced_tokens_and_values_of_whole_rows():
    # the first two steps of `test_by_hand` with log-ratios .5 and -.3 + .1, and a token outside the mask before both
    nan = torch.nan
    out, batch = rows(
        torch.tensor([[nan, 0.5, nan, -0.3, 0.1]]),
        torch.tensor([[nan, 0.5, nan, 0.52, 0.52]]),
        torch.tensor([[0, 0, 0, 1, 1]]),
        torch.tensor([0.47]),
        torch.tensor([[False, True, False, True, True]]),
    )
    loss = StepRegression(0.05)(out, batch)
    assert_close(loss, torch.tensor([[0.0, 0.005, 0.0, 0.0, 0.32]]), atol=1e-6, rtol=0)
    loss.sum().backward()
    assert_close(out.logprobs.grad, torch.tensor([[0.0, 0.1, 0.0, 0.8, 0.8]]), atol=1e-6, rtol=0)
    ratio = StepRegression().metrics(out, batch)["log_ratio"]
    assert_close(ratio, torch.tensor([[0.0, 0.5, 0.0, 0.0, -0.2]]))
    # one step a row, of value .5: (-.03 / .05 - .2)^2 / 2
    out, batch = rows(torch.tensor([[0.2]]), torch.tensor([0.5]), torch.tensor([[0]]), torch.tensor([0.47]))
    assert_close(StepRegression(0.05)(out, batch), torch.tensor([[0.32]]), atol=1e-6, rtol=0)


def test_no_advantage_at_the_reference_is_nothing_to_learn():
    out, batch = rows(torch.zeros(1, 3), torch.full((1, 3), 0.4), torch.tensor([[0, 1, 1]]), torch.tensor([0.4]))
    loss = StepRegression()(out, batch)
    loss.sum().backward()
    assert not loss.any() and not out.logprobs.grad.any()


def test_forced_tokens_belong_to_no_step():
    mask = torch.tensor([[True, True, False, True, True]])
    segment = torch.tensor([[0, 0, 0, 0, 1]])
    assert step_ends(segment, mask).tolist() == [[False, False, False, True, True]]
    ratio = torch.tensor([[1.0, 2.0, torch.nan, 4.0, 8.0]])
    assert_close(step_log_ratio(ratio, segment, mask), torch.tensor([[7.0, 7.0, 0.0, 7.0, 8.0]]))


def test_the_optimum_of_a_bandit_is_the_reference_times_exp_of_the_advantage():
    """Three one-token answers of a known value, in proportion to a reference; plain gradient descent on the logits."""
    reference, reward, beta = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.0, 0.1, 0.2]).double(), 0.2
    value = (reference * reward).sum()
    logits = reference.log().clone().requires_grad_()
    part = StepRegression(beta)
    for _ in range(300):
        new = logits.log_softmax(0)[:, None]
        batch = Batch(
            action_mask=torch.ones(3, 1).bool(), segment=torch.zeros(3, 1).long(), reward=reward,
            values=value.expand(3, 1), behavior_logprobs=reference.log()[:, None],
        )  # fmt: skip
        loss = (reference[:, None] * part(PolicyOutput(new, new), batch)).sum()
        (slope,) = torch.autograd.grad(loss, logits)
        logits.data -= slope
    optimum = reference * ((reward - value) / beta).exp()
    distance = (logits.softmax(0) - optimum / optimum.sum()).abs().sum() / 2
    assert distance < 0.02
    assert (reference - optimum / optimum.sum()).abs().sum() / 2 > 0.1  # which is not where it began


def test_settings_are_checked():
    with pytest.raises(ValueError, match="beta"):
        StepRegression(0.0)
