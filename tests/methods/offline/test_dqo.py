"""DQO's losses, by hand; the arithmetic is tested in tests/ops/test_soft_returns.py."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.methods.offline.dqo import QFunctionLoss, SoftValueLoss, truncated_products
from tests.composed_words import compose_words
from tests.laws.example import Example

LAWS = [
    Example(SoftValueLoss()),
    Example(SoftValueLoss(0.5, gae_lambda=1.0, old=None)),
]

ALL = torch.ones(1, 3).bool()


def row(**columns):
    """Log-ratios [.5, -.2, 1] to the reference, values [.4, .5, .7], the reward 1."""
    new = torch.tensor([[-1.0, -1.2, -0.5]]).requires_grad_()
    out = PolicyOutput(new, new.detach(), torch.tensor([[0.4, 0.5, 0.7]]).requires_grad_())
    reference = new.detach() - torch.tensor([[0.5, -0.2, 1.0]])
    return out, Batch(action_mask=ALL, episode_reward=torch.ones(1), ref_logprobs=reference, **columns)


def test_the_policy_loss_by_hand():
    out, batch = row()
    loss = QFunctionLoss(0.1)(out, batch)
    assert_close(loss, torch.tensor([[0.0025, 0.0484, 0.04]]))
    loss.mean().backward()
    assert out.values.grad is None and out.logprobs.grad.abs().min() > 0


def test_the_value_loss_by_hand():
    # G at lambda .95 is [.8395, .91, .9], see tests/ops: errors .4395, .41 and .2
    out, batch = row()
    plain = SoftValueLoss(0.1, gae_lambda=0.95, old=None)(out, batch)
    assert_close(plain, torch.tensor([[0.4395, 0.41, 0.2]]).square())
    plain.sum().backward()  # the return is a constant
    assert_close(out.values.grad, -2 * torch.tensor([[0.4395, 0.41, 0.2]]))
    assert out.logprobs.grad is None
    # ratios 2, 1/2 and 1/2 to the behaviour policy: products of min(1, ratio) to the end 1/4, 1/4, 1/2
    old = out.logprobs.detach() - torch.tensor([[2.0, 0.5, 0.5]]).log()
    out, batch = row(behavior_logprobs=old)
    weighted = SoftValueLoss(0.1, gae_lambda=0.95)(out, batch)
    assert_close(weighted, plain.detach() * torch.tensor([[0.25, 0.25, 0.5]]))


def test_a_forced_choice_is_passed_over():
    """Choices 1 and 3: log-ratios .5 and 1, values .4 and .7, ratios 2 and 1/2 to the behaviour policy.

    The policy's residuals are .05 - (.7 - .4) = -.25 and .1 - (1 - .7) = -.2. The return of the last choice is
    1 - .1 = .9, that of the first -.05 + .05 * .7 + .95 * .9 = .84: errors .44 and .2, both of weight 1/2.
    """
    nan = torch.nan
    out, batch = row(behavior_logprobs=torch.tensor([[-1.0, nan, -0.5]]) - torch.tensor([[2.0, 1.0, 0.5]]).log())
    batch = batch.with_columns(action_mask=torch.tensor([[True, False, True]]))
    batch["ref_logprobs"][0, 1] = nan
    assert_close(QFunctionLoss(0.1)(out, batch), torch.tensor([[0.0625, 0.0, 0.04]]))
    loss = SoftValueLoss(0.1, gae_lambda=0.95)(out, batch)
    assert_close(loss, torch.tensor([[0.0968, 0.0, 0.02]]))
    loss.sum().backward()
    assert_close(out.values.grad, torch.tensor([[-0.44, 0.0, -0.2]]))
    assert out.logprobs.grad is None


def test_the_reward_comes_with_the_last_choice_inside_the_mask():
    """Choices 1 and 2: .05 - (.5 - .4) and -.02 - (1 - .5); returns 1.02 and -.05 + .05 * .5 + .95 * 1.02 = .944."""
    out, batch = row(behavior_logprobs=torch.tensor([[-1.0, -1.2, torch.nan]]))
    batch = batch.with_columns(action_mask=torch.tensor([[True, True, False]]))
    assert_close(QFunctionLoss(0.1)(out, batch), torch.tensor([[0.0025, 0.2704, 0.0]]))
    loss = SoftValueLoss(0.1, gae_lambda=0.95)(out, batch)
    assert_close(loss, torch.tensor([[0.544**2, 0.2704, 0.0]]))


def test_products_have_a_lower_bound_and_pass_over_forced_choices():
    ratio = torch.tensor([[0.5, torch.nan, 0.1]]).log().requires_grad_()
    mask = torch.tensor([[True, False, True]])
    assert_close(truncated_products(ratio, mask, 0.01), torch.tensor([[0.05, 0.0, 0.1]]))
    assert not truncated_products(ratio, mask, 0.01).requires_grad
    assert_close(truncated_products(ratio, mask, 0.08), torch.tensor([[0.08, 0.0, 0.1]]))


def test_refusals():
    for arguments in ({"beta": 0.0}, {"gae_lambda": 1.5}, {"min_weight": 0.0}):
        with pytest.raises(ValueError, match=rf"\.{next(iter(arguments))} must be"):
            SoftValueLoss(**arguments)
    out, batch = row()
    out.values = None
    with pytest.raises(ValueError, match="value_head=true"):
        QFunctionLoss()(out, batch)


def test_both_losses_of_the_recipe_are_of_one_beta():
    terms = compose_words(("recipe=dqo", "objective.terms.policy.beta=0.3")).model.objective.terms
    assert terms.value.beta == terms.policy.beta == 0.3
    plain = compose_words(("recipe=dqo",)).model.objective.terms
    assert plain.value.beta == plain.policy.beta == QFunctionLoss().beta
