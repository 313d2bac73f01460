"""Regularisation of low-probability tokens, by hand."""

import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput, Sampling
from mmrl.methods.entropy.lp_reg import LowProbabilityProxy, LowProbabilitySurrogate, MinPProbability, min_p_probability
from mmrl.objectives.policy import ClippedSurrogate
from tests.laws.example import Example

LAWS = [
    Example(LowProbabilityProxy(fraction=0.5)),
    Example(LowProbabilitySurrogate(coef=0.01)),
]

P = torch.tensor([0.6, 0.25, 0.1, 0.04, 0.01]).double()
CTX = Context(task=None, engine=None, policy=None, sampling=Sampling(), seed=0, iteration=0)


def test_min_p_filtering_by_hand():
    # at .2 those of .12 and more are kept: .6 / .85 = .705882 and .25 / .85 = .294118
    logits = P.log().expand(1, 5, 5)
    proxy = min_p_probability(logits, torch.arange(5)[None], 0.2)
    assert_close(proxy, torch.tensor([[0.705882, 0.294118, 0, 0, 0]]).double(), atol=1e-6, rtol=0)
    assert_close(min_p_probability(logits, torch.arange(5)[None], 0.0), P[None])
    # the temperature is that of the distribution drawn from: at 2 logits are halved
    statistic = MinPProbability(0.2)
    assert_close(statistic.measure(2 * logits, torch.tensor([2.0]), torch.arange(5)[None]), proxy)
    with_gradient = logits.clone().requires_grad_()
    assert not statistic.measure(with_gradient, torch.ones(1), torch.arange(5)[None]).requires_grad


def row(logprob, advantage, proxy):
    new = torch.tensor([[logprob]]).double().requires_grad_()
    one = {"action_mask": torch.ones(1, 1).bool(), "behavior_logprobs": new.detach()}
    numbers = {"advantages": torch.tensor([[advantage]]).double(), "min_p_probs": torch.tensor([[proxy]]).double()}
    return PolicyOutput(new, new.detach()), Batch(**one, **numbers)


def test_the_loss_by_hand():
    # p = .25, q = .294118: k3 = q / p - 1 - log(q / p) = 1.176471 - 1 - .162519 = .013952, beside -A ratio = 1
    loss = LowProbabilitySurrogate()
    out, batch = row(math.log(0.25), -1.0, 0.25 / 0.85)
    value = loss(out, batch)
    assert_close(value, torch.tensor([[1.013952]]).double(), atol=1e-6, rtol=0)
    # d k3 / d log p = 1 - q / p: less is taken from the choice than by the surrogate alone, 1 + 1 - 1.176471
    value.sum().backward()
    assert_close(out.logprobs.grad, torch.tensor([[2 - 1 / 0.85]]).double())
    assert loss.metrics(out, batch)["regularised"].item() == 1


@pytest.mark.parametrize(
    ("logprob", "advantage", "proxy"),
    [
        (math.log(0.1), -1.0, 0.0),
        (math.log(0.6), -1.0, 0.5),
        (math.log(0.1), 1.0, 0.5),
        (math.log(0.1), 0.0, 0.5),
        (0.0, -1.0, 1.0),
    ],
    ids=["filtered out", "likely enough", "right answer", "no advantage", "just as likely"],
)
def test_elsewhere_it_is_the_clipped_surrogate(logprob, advantage, proxy):
    out, batch = row(logprob, advantage, proxy)
    assert_close(LowProbabilitySurrogate()(out, batch), ClippedSurrogate()(out, batch))
    assert LowProbabilitySurrogate().metrics(out, batch)["regularised"].item() == 0


def test_only_the_least_likely_of_wrong_answers_are_kept():
    logprobs = torch.tensor([[-1.0, -4.0, -3.0], [-9.0, -9.0, -2.0], [-5.0, -0.5, -8.0]])
    batch = Batch(
        action_mask=torch.tensor([[1, 1, 1], [1, 1, 1], [1, 1, 0]]).bool(),
        advantages=torch.tensor([-1.0, 1.0, -1.0])[:, None].expand(3, 3).clone(),
        behavior_logprobs=logprobs,
        min_p_probs=torch.full((3, 3), 0.5),
    )
    # five choices with a negative advantage; int(.4 * 5) = 2 least likely: -5 and -4
    kept = LowProbabilityProxy(0.4)(batch, CTX)
    assert_close(kept["min_p_probs"], torch.tensor([[0, 0.5, 0], [0, 0, 0], [0.5, 0, 0]]))
    assert LowProbabilityProxy().metrics(kept, CTX) == {"fraction": 2 / 8}
    assert not LowProbabilityProxy(0.3)(batch, CTX)["min_p_probs"].any()  # one alone is none


def test_settings_are_checked():
    for part, name in ((LowProbabilityProxy, "fraction"), (LowProbabilitySurrogate, "coef")):
        with pytest.raises(ValueError, match=name):
            part(**{name: -1.0})
    with pytest.raises(ValueError, match="min_p"):
        MinPProbability(2.0)


def test_an_id_at_the_bound_is_not_filtered_out():
    # 1 and 1/2 at min-p 1/2: 2/3 and 1/3
    logits = torch.tensor([[[0.0, math.log(0.5)]]], dtype=torch.float64).expand(1, 2, 2)
    assert_close(min_p_probability(logits, torch.tensor([[0, 1]]), 0.5), torch.tensor([[2 / 3, 1 / 3]]).double())


def test_choices_without_an_advantage_or_outside_the_mask_do_not_count():
    batch = Batch(
        action_mask=torch.tensor([[True] * 4, [False] * 4]),
        advantages=torch.tensor([[-1.0, -1.0, 0.0, 0.0]]).expand(2, 4),
        behavior_logprobs=torch.tensor([[-1.0, -2.0, -9.0, -9.0]]).expand(2, 4),
        min_p_probs=torch.full((2, 4), 0.5),
    )
    part = LowProbabilityProxy(1.0)
    assert_close(part(batch, CTX)["min_p_probs"], torch.tensor([[0.5, 0.5, 0, 0], [0.0] * 4]))
    assert part.metrics(batch, CTX) == {"fraction": 1.0}  # of the four choices of the first row


def test_what_is_outside_the_mask_has_no_gradient():
    # the choice of the test by hand, beside one with a probability of 0 that is not the policy's
    new = torch.tensor([[math.log(0.25), -1e4]]).double().requires_grad_()
    batch = Batch(
        action_mask=torch.tensor([[True, False]]),
        behavior_logprobs=new.detach(),
        advantages=torch.tensor([[-1.0, -1.0]]).double(),
        min_p_probs=torch.tensor([[0.25 / 0.85, 0.5]]).double(),
    )
    LowProbabilitySurrogate()(PolicyOutput(new, new.detach()), batch).sum().backward()
    assert_close(new.grad, torch.tensor([[2 - 1 / 0.85, 0.0]]).double())
