"""Rewards without labels: agreement of the completions of a prompt, by hand."""

import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Completion, Episode, Prompt, Turn
from mmrl.methods.vision.ttrv import Agreement, answer_entropy, answer_shares
from mmrl.ops.advantage import group_advantage


def rewards(answers, reward=None):
    reward = reward or Agreement({})
    group = [
        Episode(Prompt("p"), 0, i, [Turn(Completion({}, torch.zeros(1), torch.zeros(1), torch.ones(1).bool(), a))])
        for i, a in enumerate(answers)
    ]
    for episode, scores in zip(group, reward.scores(group)):
        episode.scores = scores
    return torch.tensor(reward(group))


def test_by_hand():
    # H = -(3/4 log 3/4 + 1/4 log 1/4) = .562335, over log 2 = .811278; 3/4 - 3/4 * .811278 = .141541
    assert_close(answer_shares(list("aaab")), [0.75, 0.75, 0.75, 0.25])
    assert answer_entropy(list("aaab")) == pytest.approx(0.562335 / math.log(2), abs=1e-6)
    out = rewards("aaab")
    assert_close(out, torch.tensor([0.141541] * 3 + [-0.358459]), atol=1e-6, rtol=0)
    advantages = group_advantage(out.double(), torch.zeros(4, dtype=torch.long), epsilon=0)
    assert_close(advantages, torch.tensor([0.577350] * 3 + [-1.732051]).double(), atol=1e-6, rtol=0)
    assert_close(rewards("abcd"), torch.full((4,), 0.25 - 0.75))


def test_the_mean_of_a_group_cancels_the_entropy():
    group = torch.zeros(4, dtype=torch.long)
    with_entropy, without = (rewards("aaab", Agreement({}, coef)).double() for coef in (0.75, 0.0))
    assert_close(*(group_advantage(r, group) for r in (with_entropy, without)), atol=1e-6, rtol=0)
    assert (group_advantage(with_entropy, group, None, None) < group_advantage(without, group, None, None)).all()


def test_agreement_has_no_advantage_and_no_answer_no_reward():
    assert_close(rewards("aaaa"), torch.ones(4))
    assert_close(answer_shares([None, "a", None, "a"]), [0.0, 0.5, 0.0, 0.5])
    # two of three wrong answers agree: they are taught, whatever the label is
    assert_close(rewards("wwr", Agreement({}, 0.0)), torch.tensor([2 / 3, 2 / 3, 1 / 3]))


def test_majority_is_ttrl():
    majority = Agreement({}, 0.0, majority=True)
    assert_close(rewards("aaab", majority), torch.tensor([1.0, 1.0, 1.0, 0.0]))
    assert_close(rewards("abab", majority), torch.tensor([1.0, 0.0, 1.0, 0.0]))  # the first at a tie
    with pytest.raises(ValueError):
        Agreement({}, extract="nonsense")
