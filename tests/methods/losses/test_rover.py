"""Valuation of the uniformly random policy, by hand."""

import pytest
import torch
from hydra.utils import instantiate
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput, Sampling
from mmrl.methods.losses.rover import CentredReward, MeanLogprob, UniformBellmanLoss, uniform_bellman_residual
from mmrl.ops.choice import MASKED_LOGIT
from tests.composed_words import compose_words
from tests.laws.example import Example, context, rows

LAWS = [
    Example(CentredReward()),
    Example(CentredReward(scale=True)),
    Example(UniformBellmanLoss(0.5)),
]

CTX = Context(task=None, engine=None, policy=None, sampling=Sampling(), seed=0, iteration=0)
ALL = torch.ones(1, 2).bool()


def test_mean_log_probability_by_hand():
    # mean(x) - log sum exp(x): 0 - 1.407606 and .066667 - 1.545006 = -1.478339
    old, new = torch.tensor([[[1.0, 0, -1]]]), torch.tensor([[[1.2, 0, -1]]])
    one = torch.ones(1)
    assert_close(MeanLogprob()(old, one), torch.tensor([[-1.407606]]), atol=1e-6, rtol=0)
    assert_close(MeanLogprob()(new, one), torch.tensor([[-1.478339]]), atol=1e-6, rtol=0)
    assert_close(MeanLogprob()(3 * old, 3 * one), MeanLogprob()(old, one))
    assert not MeanLogprob()(old.requires_grad_(), one).requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_ids_that_cannot_be_chosen_have_no_part_in_the_mean(dtype):
    """Such as image placeholders: their logits are constants, whatever is added to all the others."""
    for level in (0.0, 2.0):
        logits = torch.tensor([[[1.0 + level, level, level - 1, MASKED_LOGIT]]])
        assert_close(MeanLogprob()(logits.to(dtype), torch.ones(1)), torch.tensor([[-1.407606]]), atol=1e-6, rtol=0)


def test_the_residual_by_hand():
    # V of the second state -1.478339 + 1.407606 = -.070733; targets .429267 and .5; (.379267^2 + .48^2) / 2 = .187122
    q = torch.tensor([[0.05, 0.02]]).requires_grad_()
    means = torch.tensor([[7.0, -1.478339]]).requires_grad_(), torch.tensor([[7.0, -1.407606]])
    residual = uniform_bellman_residual(q, torch.zeros(1, 2), *means, torch.full((1, 2), 0.5), ALL)
    assert_close(residual, torch.tensor([[-0.379267, -0.48]]), atol=1e-6, rtol=0)
    loss = residual.square().mean()
    assert_close(loss, torch.tensor(0.187122), atol=1e-6, rtol=0)
    loss.backward()  # the target is a constant
    assert_close(q.grad, residual.detach())
    assert means[0].grad is None


def test_what_was_not_chosen_does_not_count():
    """The third choice follows the first: with rho 2, V of the third is 2 (.3 - .1) = .4, Q is .2 and .6.

    Residuals .2 - (.5 + .4) = -.7 and .6 - .25 = .35; their squares have the gradients 2 rho e, so -2.8 and 1.4.
    """
    mask, nan = torch.tensor([[True, False, True]]), torch.nan
    q = torch.tensor([[0.1, nan, 0.3]]).requires_grad_()
    means = torch.tensor([[7.0, 5.0, 0.3]]), torch.tensor([[7.0, nan, 0.1]])
    row = Batch(
        action_mask=mask,
        token_rewards=torch.tensor([[0.5, nan, 0.25]]),
        old_mean_logprobs=means[1],
        behavior_logprobs=torch.tensor([[0.0, nan, 0.0]]),
    )
    loss = UniformBellmanLoss(2.0)(PolicyOutput(q, q.detach(), extra={"mean_logprob": means[0]}), row)
    assert_close(loss, torch.tensor([[0.49, 0.0, 0.1225]]))
    loss.sum().backward()
    assert_close(q.grad, torch.tensor([[-2.8, 0.0, 1.4]]))


def test_a_fixed_point_is_the_value_of_choosing_at_random():
    """Two choices of two ids each; only (1, 0) is right: Q of the first is 0 or 1/2, the mean of what follows."""
    q = {(): torch.tensor([0.0, 0.5]), (0,): torch.zeros(2), (1,): torch.tensor([1.0, 0.0])}
    for path in ((0, 0), (0, 1), (1, 0), (1, 1)):
        first, second = q[()], q[path[:1]]
        chosen = torch.tensor([[first[path[0]], second[path[1]]]])
        means = torch.tensor([[first.mean(), second.mean()]])
        reward = torch.tensor([[0.0, float(path == (1, 0))]])
        zero = torch.zeros(1, 2)
        assert_close(uniform_bellman_residual(chosen, zero, means, zero, reward, ALL), zero)
    assert int(q[()].argmax()) == 1 and int(q[(1,)].argmax()) == 0  # greedily to the right answer


def test_centred_rewards_are_those_of_every_choice():
    batch = Batch(
        group=torch.zeros(4).long(),
        episode=torch.arange(4),
        episode_reward=torch.tensor([1.0, 0, 0, 1]),
        action_mask=torch.tensor([[1, 1], [1, 0], [1, 1], [1, 1]]).bool(),
    )
    half = torch.tensor([[0.5, 0.5], [-0.5, 0], [-0.5, -0.5], [0.5, 0.5]])
    assert_close(CentredReward()(batch, CTX)["token_rewards"], half)
    assert_close(CentredReward(scale=True)(batch, CTX)["token_rewards"], 2 * half, atol=1e-5, rtol=0)
    equal = batch.with_columns(episode_reward=torch.ones(4))
    assert not CentredReward()(equal, CTX)["token_rewards"].any()


def test_the_loss_reads_the_policys_statistic():
    row = Batch(
        action_mask=ALL, token_rewards=torch.full((1, 2), 0.5), old_mean_logprobs=torch.tensor([[7.0, -1.407606]]),
        behavior_logprobs=torch.zeros(1, 2),
    )  # fmt: skip
    q = torch.tensor([[0.05, 0.02]])
    out = PolicyOutput(q, q, extra={"mean_logprob": torch.tensor([[7.0, -1.478339]])})
    assert_close(UniformBellmanLoss()(out, row).mean(), torch.tensor(0.187122), atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match="rho"):
        UniformBellmanLoss(0.0)


def test_rows_of_older_weights_have_no_residual_before_the_update():
    """The recipe's log-probs and means before the update are of the same weights, whichever weights sampled."""
    recipe = compose_words(("recipe=rover",))
    ctx, batch = context(per_row=False), rows(per_row=False)
    batch = batch.with_columns(episode_reward=torch.ones(batch.rows))
    older = context(per_row=False).models["reference"](batch).logprobs.detach()
    batch = batch.with_columns(behavior_logprobs=older)
    del batch["old_logprobs"], batch["old_mean_logprobs"]
    for name in recipe.data.pipeline:
        batch = instantiate(recipe.data.annotators[name])(batch, ctx)
    loss = instantiate(recipe.model.objective.terms.policy)(ctx.policy(batch), batch)
    assert (ctx.policy(batch).logprobs - older)[batch["action_mask"]].abs().max() > 0.1
    assert_close(loss, torch.zeros_like(loss), atol=1e-10, rtol=0)
