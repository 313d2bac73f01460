"""Direction, fixed point and staleness of every term and annotator that prefers choices, on enumerated problems."""

import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Context, Sampling
from mmrl.methods.guidance.ampo import ShapedSurrogate
from mmrl.methods.guidance.rl_plus import MixtureSurrogate
from mmrl.methods.losses.gmpo import GeometricMeanSurrogate
from mmrl.methods.losses.kimi import MirrorDescentLoss
from mmrl.methods.offline.copg import CoPGLoss
from mmrl.methods.robots.dppo import DenoisingSurrogate
from mmrl.objectives.policy import CISPO
from mmrl.objectives.policy_chain import ChainSurrogate
from mmrl.objectives.preference import DPOLoss
from tests.laws.bench import (
    ARMS,
    BETA,
    FEW,
    REWARD,
    SAMPLER,
    WORTH,
    expected_reward,
    gradient,
    pairs,
    pulled,
    scored,
)
from tests.laws.law_examples import ANNOTATORS, TERMS

CHAINS = (ChainSurrogate, DenoisingSurrogate)  # a row of theirs is a chain: tests/objectives tries them
OTHERS = (MixtureSurrogate, ShapedSurrogate)  # for choices without log-probs of the policy that made them
KNOWN = set(pulled(SAMPLER, REWARD, SAMPLER))
surrogates = pytest.mark.parametrize(
    "term",
    [e.part for e in TERMS if {"advantages"} <= e.part.reads() <= KNOWN and not isinstance(e.part, CHAINS + OTHERS)],
    ids=str,
)
# CISPO clips the weight and not the gradient, so it never comes to rest
clipping = [e.part for e in TERMS if hasattr(e.part, "clip_high") and not isinstance(e.part, (*CHAINS, CISPO))]
losses = pytest.mark.parametrize("loss", ["sigmoid", "ipo", "hinge"])


def better(logits):
    """Advantages over what the policy of these logits earns."""
    return REWARD - expected_reward(logits)


# ---------------------------------------------------------------- surrogates on the bandit


@surrogates
def test_a_surrogate_climbs_the_expected_reward(term):
    """On the sampling policy's own data its gradient is that of the reward, whatever the ratio."""
    logits = SAMPLER.clone().requires_grad_()
    climb = torch.autograd.grad(expected_reward(logits), logits)[0]
    assert_close(-gradient(term, SAMPLER, pulled(SAMPLER, better(SAMPLER), SAMPLER)), climb, rtol=1e-5, atol=1e-9)


@surrogates
def test_a_surrogate_rests_where_all_arms_are_worth_the_same(term):
    batch = pulled(SAMPLER, torch.full((ARMS,), 0.7).double(), SAMPLER)
    assert gradient(term, SAMPLER, batch).abs().max() < 1e-7


@pytest.mark.parametrize("term", clipping, ids=str)
def test_on_one_stale_batch_a_clipped_surrogate_climbs_and_stops(term):
    """However long it learns from one batch, no arm is pushed on whose ratio has left the interval."""
    batch = pulled(SAMPLER, better(SAMPLER), SAMPLER)
    logits = SAMPLER.clone()
    for _ in range(40):
        logits = logits - 20.0 * gradient(term, logits, batch)
    assert expected_reward(logits) > expected_reward(SAMPLER)
    ratio = (logits.log_softmax(-1) - SAMPLER.log_softmax(-1)).exp()
    low, high = 1 - term.clip_low, 1 + term.clip_high
    if isinstance(term, GeometricMeanSurrogate):  # whose bounds are those of the log-ratio
        low, high = math.exp(-term.clip_low), math.exp(term.clip_high)
    beyond = ((better(SAMPLER) > 0) & (ratio > high)) | ((better(SAMPLER) < 0) & (ratio < low))
    assert beyond.any()
    left = batch.with_columns(advantages=torch.where(beyond, batch["advantages"][:, 0], 0.0)[:, None])
    assert gradient(term, logits, left).abs().max() < 1e-7


@surrogates
def test_far_from_the_sampler_only_bounded_surrogates_rest(term):
    """Every arm has already moved by e^2 in the direction of its advantage; CISPO keeps a gradient everywhere."""
    advantages = better(SAMPLER)
    away = SAMPLER + 2 * advantages.sign()
    ratio = (away.log_softmax(-1) - SAMPLER.log_softmax(-1)).exp()
    advantages = torch.where((advantages > 0) == (ratio > 1), advantages, 0)  # the normaliser moves some the other way
    left = gradient(term, away, pulled(SAMPLER, advantages, SAMPLER)).abs().max()
    assert (left < 1e-7) == (hasattr(term, "clip_high") and not isinstance(term, CISPO))


@pytest.mark.parametrize("term", [e.part for e in TERMS if isinstance(e.part, OTHERS)], ids=str)
def test_a_shown_choice_is_taken_up_and_a_warned_of_one_is_not(term):
    """Whoever made them: the arm of positive advantage gains, that of negative advantage loses."""
    advantages = torch.zeros(ARMS).double()
    advantages[70], advantages[3] = 1.0, -1.0
    step = -gradient(term, SAMPLER, pulled(SAMPLER, advantages, SAMPLER))
    assert step[70] > 0 > step[3] and {int(step.argmax()), int(step.argmin())} == {70, 3}


# ---------------------------------------------------------------- advantages


@pytest.mark.parametrize("example", [e for e in ANNOTATORS if e.group_relative], ids=lambda e: e.name)
def test_an_advantage_orders_episodes_as_their_rewards_do(example):
    batch = pulled(SAMPLER, REWARD, SAMPLER).with_columns(episode_reward=REWARD)
    missing = example.part.reads() - set(batch)
    if missing:
        pytest.skip(f"is about {sorted(missing)}, of which a bandit has none")
    ctx = Context(None, None, None, Sampling(), seed=0, iteration=0, group_size=ARMS)
    advantages = example.part(batch, ctx)["advantages"][:, 0]
    order = REWARD.argsort()
    assert (advantages[order].diff() >= 0).all() and advantages[order[-1]] > 0 > advantages[order[0]]
    level = example.part(batch.with_columns(episode_reward=torch.full((ARMS,), 0.3)), ctx)
    assert (level["advantages"] == 0).all()


# ---------------------------------------------------------------- preferences


@losses
def test_a_preference_raises_what_is_worth_more(loss):
    reference = torch.zeros(FEW).double()
    step = -gradient(DPOLoss(loss, BETA), reference, pairs(reference))
    assert (step.diff() > 0).all() and step[0] < 0 < step[-1]


@pytest.mark.parametrize("often", [None, torch.linspace(0.2, 3, FEW).double()], ids=["all alike", "stale"])
def test_a_logistic_preference_rests_at_the_regularised_optimum(often):
    """pi = ref exp(worth / beta) / Z, whoever showed the pairs and how often: the margin is what decides."""
    reference = torch.linspace(0.5, -0.5, FEW).double()
    best = reference + WORTH / BETA
    term = DPOLoss("sigmoid", BETA)
    assert gradient(term, best, pairs(reference, often)).abs().max() < 1e-7
    assert gradient(term, best + 0.3 * WORTH, pairs(reference, often)).abs().max() > 1e-3


def test_a_squared_preference_rests_at_its_margin():
    """Two arms, one always preferred: m = 1 / (2 beta), where the logistic loss would go on for ever."""
    reference = torch.zeros(FEW).double()
    batch = pairs(reference)
    two = ((batch["action"][::2, 0] == FEW - 1) & (batch["action"][1::2, 0] == 0)).nonzero().flatten()
    batch = batch.select(torch.cat([2 * two, 2 * two + 1]))
    best = reference.clone()
    best[-1], best[0] = 1 / (4 * BETA), -1 / (4 * BETA)
    assert gradient(DPOLoss("ipo", BETA), best, batch).abs().max() < 1e-7
    assert gradient(DPOLoss("sigmoid", BETA), best, batch).abs().max() > 1e-3


@losses
def test_margins_are_reported(loss):
    reference = torch.zeros(FEW).double()
    batch = pairs(reference)
    reported = DPOLoss(loss, BETA).metrics(scored(reference + WORTH, batch), batch)
    expected = (WORTH[batch["action"][::2, 0]] - WORTH[batch["action"][1::2, 0]]).repeat_interleave(2)
    assert_close(reported["margin"], expected)
    assert_close(reported["accuracy"], (expected > 0).double())


# ---------------------------------------------------------------- squared residuals


@pytest.mark.parametrize("often", [None, torch.linspace(0.2, 3, FEW).double()], ids=["all alike", "stale"])
def test_contrastive_policy_gradient_rests_at_the_regularised_optimum(often):
    """pi = ref exp(R / beta) / Z and nowhere else, whoever sampled the pairs and how often."""
    reference = torch.linspace(0.5, -0.5, FEW).double()
    batch = pairs(reference, often)
    batch = batch.with_columns(episode_reward=WORTH[batch["action"][:, 0]])
    term, best = CoPGLoss(BETA), reference + WORTH / BETA
    assert gradient(term, best, batch).abs().max() < 1e-7
    assert gradient(term, best + 0.3 * WORTH, batch).abs().max() > 1e-3
    step = -gradient(term, reference, batch)
    assert step[0] < 0 < step[-1]


def every_arm(old):
    """One group that holds every arm once, as a policy of equal probabilities samples on average."""
    rows = torch.arange(FEW)
    return Batch(
        action=rows[:, None],
        action_mask=torch.ones(FEW, 1, dtype=torch.bool),
        group=torch.zeros_like(rows),
        episode_reward=WORTH,
        behavior_logprobs=old.log_softmax(-1)[:, None],
        loss_weights=torch.full((FEW, 1), 1 / FEW).double(),
    )


def test_mirror_descent_rests_at_the_optimum_of_its_iteration():
    """pi = old exp(r / tau) / Z with the exact normaliser; the mean reward is tau log Z only where tau is large."""
    old = torch.zeros(FEW).double()
    best = old + WORTH / BETA
    assert gradient(MirrorDescentLoss(BETA, "log_mean_exp"), best, every_arm(old)).abs().max() < 1e-7
    assert gradient(MirrorDescentLoss(BETA, "log_mean_exp"), old, every_arm(old)).abs().max() > 1e-2
    assert gradient(MirrorDescentLoss(BETA), best, every_arm(old)).abs().max() > 1e-3
    far = 100.0
    assert gradient(MirrorDescentLoss(far), old + WORTH / far, every_arm(old)).abs().max() < 1e-4
