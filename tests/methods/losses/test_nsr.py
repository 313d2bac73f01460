"""Negative sample reinforcement: signed weights by hand, and where a wrong answer's probability goes."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput, Sampling
from mmrl.methods.losses.nsr import SignedAdvantage
from mmrl.objectives.objective import Objective
from mmrl.objectives.policy import ClippedSurrogate, PolicyGradient
from mmrl.objectives.weighting import TokenMean

REWARD = torch.tensor([1.0, 1, 0, 1, 0, 0, 0, 0])
CTX = Context(None, None, None, Sampling(), seed=0, iteration=0)


def advantages(positive, negative, reward=REWARD):
    batch = Batch(action_mask=torch.tensor([[True, False]]).expand(len(reward), 2), episode_reward=reward)
    out = SignedAdvantage(positive, negative)(batch, CTX)["advantages"]
    assert (out[:, 1] == 0).all()
    return out[:, 0]


def test_by_hand():
    assert_close(advantages(0.1, 1.0), torch.tensor([0.1, 0.1, -1, 0.1, -1, -1, -1, -1]))
    assert_close(advantages(1.0, 0.0), REWARD)
    assert_close(advantages(0.0, 1.0), REWARD - 1)
    with pytest.raises(ValueError, match="not both 0"):
        SignedAdvantage(0.0, 0.0)


@pytest.mark.parametrize("term", [PolicyGradient(), ClippedSurrogate()], ids=str)
def test_a_wrong_answer_gives_to_the_others_in_proportion_to_theirs(term):
    """p = [.6, .3, .1], token 0 was wrong: the ascent on the logits is [-(1 - p_0), p_1, p_2] = [-.4, .3, .1].

    The ratio p / p_old at p = p_old has the gradient of log p; that of p itself is p_0 times it: [-.24, .18, .06].
    """
    logits = torch.tensor([0.6, 0.3, 0.1]).log().requires_grad_()
    logprob = logits.log_softmax(-1)[:1, None]
    batch = Batch(
        action_mask=torch.ones(1, 1).bool(),
        advantages=advantages(0.1, 1.0, torch.zeros(1))[:, None],
        behavior_logprobs=logprob.detach(),
        loss_weights=torch.ones(1, 1),
    )
    Objective({"policy": term})(PolicyOutput(logprob, logprob.detach()), batch)[0].backward()
    assert_close(-logits.grad, torch.tensor([-0.4, 0.3, 0.1]))
    (probability,) = torch.autograd.grad(-logits.softmax(-1)[0], logits)
    assert_close(probability, torch.tensor([-0.24, 0.18, 0.06]))


def test_a_batch_that_is_all_right_has_no_gradient_under_nsr():
    logprobs = torch.randn(4, 2, requires_grad=True)
    batch = Batch(action_mask=torch.ones(4, 2).bool(), episode_reward=torch.ones(4))
    batch = SignedAdvantage(0.0, 1.0)(batch, CTX)
    batch = batch.with_columns(loss_weights=TokenMean()(batch, lambda number: number))
    loss, _ = Objective({"policy": PolicyGradient()})(PolicyOutput(logprobs, logprobs.detach()), batch)
    loss.backward()
    assert loss == 0 and (logprobs.grad == 0).all()
