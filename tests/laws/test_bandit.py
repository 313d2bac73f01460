"""Expected gradients on a bandit, by enumerating every group that could have been drawn, against closed forms.

A row is T = 2 independent choices between two arms; the reward belongs to the pair. Every group of G episodes is a
group of one batch, and its probability is its weight, so that annotator, term and objective run as they do in training.
J = E[reward]; the loss is minimised, so its gradient is compared with -dJ/dlogits.
"""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.group_advantage import GroupAdvantage
from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput, Sampling
from mmrl.methods.losses.kimi import MirrorDescentLoss
from mmrl.methods.losses.nsr import SignedAdvantage
from mmrl.methods.losses.p3o import PairwiseSurrogate
from mmrl.methods.losses.pacs import PACSLoss
from mmrl.methods.offline.copg import CoPGLoss
from mmrl.objectives.objective import Objective
from mmrl.objectives.policy import CISPO, ClippedSurrogate, PolicyGradient
from mmrl.ops.logprob import logprob_entropy

PAIRS = torch.tensor(list(itertools.product((0, 1), repeat=2)))  # the four outcomes of a row
REWARDS = {"graded": torch.tensor([0.25, -1.0, -2.0, 0.5]), "binary": torch.tensor([0.0, 1.0, 1.0, 0.0])}
NOW = torch.tensor([[0.4, -0.3], [-0.2, 0.9]], dtype=torch.float64)  # [T, V]
OPEN = {"clip_low": 1.0, "clip_high": 1e6}  # a clip range that no ratio leaves
# each level's gradient with weights 1 / T at each choice: the mean over the choices, or the whole row at each of them
SURROGATES = [
    (PolicyGradient(), 1 / 2),
    (CISPO(), 1 / 2),
    (ClippedSurrogate(), 1 / 2),
    (ClippedSurrogate(clip_dual=3.0), 1 / 2),
    (ClippedSurrogate(importance_sampling_level="sequence"), 1 / 2),
    (ClippedSurrogate(importance_sampling_level="joint"), 1.0),
]


def pair_probability(logits):
    """[4] probability of each outcome."""
    log_p = logits.log_softmax(-1)
    return (log_p[0, PAIRS[:, 0]] + log_p[1, PAIRS[:, 1]]).exp()


def gradient_of_reward(logits, reward):
    """dJ/dlogits by autograd through J = sum_pairs p * reward."""
    logits = logits.clone().requires_grad_()
    return torch.autograd.grad((pair_probability(logits) * reward).sum(), logits)[0]


def expected_gradient(annotator, term, reward, size, behaviour=NOW):
    """d E[loss] / dlogits at NOW, over all groups of `size` episodes of the behaviour policy."""
    groups = torch.tensor(list(itertools.product(range(4), repeat=size)))  # [4^G, G]
    outcome = groups.flatten()
    action = PAIRS[outcome]
    chance = pair_probability(behaviour)[groups].prod(1).repeat_interleave(size)
    logits = NOW.clone().requires_grad_()
    rows = len(outcome)
    batch = Batch(
        episode=torch.arange(rows),
        group=torch.arange(len(groups)).repeat_interleave(size),
        episode_reward=reward[outcome],
        action_mask=torch.ones(rows, 2).bool(),
        behavior_logprobs=logprob_entropy(behaviour.expand(rows, 2, 2), action)[0],
        loss_weights=(chance / (size * 2))[:, None].expand(rows, 2),  # the mean over episodes and choices
    )
    ctx = Context(None, None, None, Sampling(), seed=0, iteration=0, group_size=size)
    batch = annotator(batch, ctx)
    out = PolicyOutput(*logprob_entropy(logits.expand(rows, 2, 2), action))
    loss, _ = Objective({"policy": term})(out, batch)
    return torch.autograd.grad(loss, logits)[0]


def name(value):
    return str(value[0]) if isinstance(value, tuple) else str(value)


@pytest.mark.parametrize("surrogate", SURROGATES, ids=name)
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("baseline", [None, "leave_one_out", "mean"])
def test_unscaled_advantages(surrogate, size, baseline):
    """The mean of the group holds 1/G of the episode itself: A = (G - 1)/G times the unbiased leave-one-out."""
    term, share = surrogate
    factor = (size - 1) / size if baseline == "mean" else 1.0
    out = expected_gradient(GroupAdvantage(None, baseline), term, REWARDS["graded"], size)
    assert_close(out, -factor * share * gradient_of_reward(NOW, REWARDS["graded"]), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("surrogate", SURROGATES, ids=name)
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("scale", ["std", "sample"])
@pytest.mark.parametrize("baseline", ["mean", "leave_one_out"])
def test_scaled_advantages_of_a_binary_reward(surrogate, size, scale, baseline):
    """With success probability q and k ~ Binomial(G, q) successes, s_k^2 = k/G (1 - k/G) and successes earn
    (1 - k/G) / s, failures -(k/G) / s. The score averages dq/q over successes and -dq/(1 - q) over failures, so

    E[mean_i A_i score_i] = dq sum_k P(k) [k/G (1 - k/G)/s + (1 - k/G) (k/G)/s] with 1/q and 1/(1 - q) on the two parts
                          = dq E[s_k] / (q (1 - q)).

    The sample std is larger by sqrt(G / (G - 1)), the leave-one-out advantage by G / (G - 1).
    """
    term, share = surrogate
    reward = REWARDS["binary"]
    q = (pair_probability(NOW) * reward).sum().item()
    mean_std = sum(
        math.comb(size, k) * q**k * (1 - q) ** (size - k) * math.sqrt(k / size * (1 - k / size))
        for k in range(size + 1)
    )
    factor = mean_std / (q * (1 - q))
    factor *= math.sqrt((size - 1) / size) if scale == "sample" else 1.0
    factor *= size / (size - 1) if baseline == "leave_one_out" else 1.0
    out = expected_gradient(GroupAdvantage(scale, baseline, epsilon=0), term, reward, size)
    assert_close(out, -factor * share * gradient_of_reward(NOW, reward), rtol=1e-6, atol=1e-7)


BEFORE = torch.tensor([[-0.6, 0.5], [0.7, -0.3]], dtype=torch.float64)


@pytest.mark.parametrize("baseline", [None, "leave_one_out", "mean"])
def test_the_joint_ratio_is_exact_on_data_of_an_older_policy(baseline):
    """E_old[(p / p_old) A dlog p] = E[A dlog p]: the ratio of the row's joint probabilities, nothing clipped."""
    factor = 2 / 3 if baseline == "mean" else 1.0
    term = ClippedSurrogate(**OPEN, importance_sampling_level="joint")
    out = expected_gradient(GroupAdvantage(None, baseline), term, REWARDS["graded"], 3, behaviour=BEFORE)
    assert_close(out, -factor * gradient_of_reward(NOW, REWARDS["graded"]), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_the_other_ratios_are_not(level):
    term = ClippedSurrogate(**OPEN, importance_sampling_level=level)
    out = expected_gradient(GroupAdvantage(None, None), term, REWARDS["graded"], 2, behaviour=BEFORE)
    exact = -gradient_of_reward(NOW, REWARDS["graded"]) / 2
    assert (out - exact).abs().max() > 0.01


@pytest.mark.parametrize("level", ["token", "sequence", "joint"])
@pytest.mark.parametrize("clip_dual", [None, 1.15])
def test_clipping_leaves_out_exactly_the_choices_beyond_the_interval(level, clip_dual):
    """Closed form: sum over outcomes of p_old r ratio dlog(ratio), for the outcomes whose gradient is open."""
    clip_low, clip_high = 0.1, 0.1
    logits = NOW.clone().requires_grad_()
    loss, closed = torch.zeros((), dtype=torch.float64), 0
    for pair, old, reward in zip(PAIRS, pair_probability(BEFORE), REWARDS["graded"].double()):
        d = torch.stack([logits[t].log_softmax(-1)[a] - BEFORE[t].log_softmax(-1)[a] for t, a in enumerate(pair)])
        per_choice = {"token": d, "sequence": d.mean().expand(2), "joint": d.sum().expand(2)}[level]
        for entry in per_choice:
            ratio = entry.exp()
            gone = (
                ratio > 1 + clip_high
                if reward > 0
                else ratio < 1 - clip_low or (clip_dual is not None and ratio > clip_dual)
            )
            closed += int(gone)
            if not gone:
                loss = loss - old * reward * ratio / 2
    assert closed > 0
    expected = torch.autograd.grad(loss, logits)[0]
    term = ClippedSurrogate(clip_low, clip_high, clip_dual, level)
    out = expected_gradient(GroupAdvantage(None, None), term, REWARDS["graded"], 2, behaviour=BEFORE)
    assert_close(out, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("surrogate", SURROGATES, ids=name)
@pytest.mark.parametrize("positive, negative", [(0.1, 1.0), (0.0, 1.0), (1.0, 0.0)])
def test_signed_advantages_climb_the_success_probability(surrogate, positive, negative):
    """E[A score] = positive dq - negative d(1 - q) = (positive + negative) dq, q the success probability."""
    term, share = surrogate
    reward = REWARDS["binary"]
    out = expected_gradient(SignedAdvantage(positive, negative), term, reward, 2)
    factor = (positive + negative) * share
    assert_close(out, -factor * gradient_of_reward(NOW, reward), rtol=1e-6, atol=1e-7)


def test_batch_scaled_advantages_climb_the_reward():
    """The batch holds all 4^G groups once, so that its std is that of four outcomes drawn alike."""
    reward = REWARDS["graded"]
    factor = 2 / 3 / 2 / reward.double().std(correction=0)
    out = expected_gradient(GroupAdvantage("batch", epsilon=0), PolicyGradient(), reward, 3)
    assert_close(out, -factor * gradient_of_reward(NOW, reward), rtol=1e-6, atol=1e-7)


def unchanged(batch, ctx):
    """The annotator of losses that compare the rewards of a group themselves."""
    return batch


@pytest.mark.parametrize(
    "term, reward, factor",
    [
        (CoPGLoss(0.5, reference="behavior_logprobs"), "graded", 1.0),
        (PairwiseSurrogate(), "graded", 1.0),
        (PairwiseSurrogate(clipping="joint"), "graded", 1.0),
        (MirrorDescentLoss(0.5), "graded", 2 / 3),  # the mean of the group holds 1/G of the completion itself
        (PACSLoss(0.5, balanced=False), "binary", 0.5),  # beta; at logit 0 the slope of BCE is 1/2 - y
    ],
    ids=str,
)
def test_losses_of_whole_groups_climb_the_reward(term, reward, factor):
    """On fresh samples, with the policy as its own reference."""
    out = expected_gradient(unchanged, term, REWARDS[reward], 3)
    assert_close(out, -factor * gradient_of_reward(NOW, REWARDS[reward]), rtol=1e-6, atol=1e-7)
