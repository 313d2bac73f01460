"""Rewards of long chains of thought, by hand."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.reward_streams import RewardStreams
from mmrl.core.batch import Batch
from mmrl.core.types import Completion, Context, Episode, Prompt, Sampling, Turn
from mmrl.methods.rewards.demystify_cot import CosineReward, RepetitionRewards, repeated_tokens

CTX = Context(task=None, engine=None, policy=None, sampling=Sampling(), seed=0, iteration=0)


def episode(ids, mask=None, exact=1.0, **extra):
    action = torch.tensor(ids)
    mask = torch.ones(len(ids), dtype=torch.bool) if mask is None else torch.tensor(mask).bool()
    done = Completion({}, action, torch.zeros(len(ids)), mask, "", extra=extra)
    return Episode(Prompt("x/train/0"), 0, 0, [Turn(done)], {"exact": exact})


def test_cosine_reward_by_hand():
    # L_max = 1000: right answers of 500 and 900 tokens 1 + .5 and 1 + .5 (1 + cos(.9 pi)) = 1.024472; wrong ones
    # -10 * the same halves: -5 and -.244717; at the limit -10
    reward = CosineReward({"exact": 0.5}, max_tokens=1000)
    right = [episode([0] * n) for n in (500, 900, 1000)]
    group = [*right, *(episode([0] * n, exact=0.0) for n in (500, 900))]
    scores = [named["cosine"] for named in reward.scores(group)]
    assert_close(torch.tensor(scores), torch.tensor([1.5, 1.024472, -10.0, -5.0, -0.244717]))
    for each, score in zip(group, scores):
        each.scores["cosine"] = score
    assert_close(torch.tensor(reward(group)), torch.tensor([2.0, 1.524472, -9.5, -5.0, -0.244717]))


def test_repeated_tokens_by_hand():
    assert repeated_tokens([1, 2, 3, 1, 2, 3, 4], 3) == [False, False, False, True, True, True, False]
    assert repeated_tokens([1, 2, 3, 4], 3) == [False] * 4
    assert repeated_tokens([1, 1, 1], 1) == [False, True, True]
    assert repeated_tokens([1], 3) == [False]


def test_the_penalty_is_that_of_sampled_tokens():
    penalise = RepetitionRewards(ngram=3, penalty=-0.05)
    (plain,) = penalise([episode([1, 2, 3, 1, 2, 3, 4])], CTX)
    expected = torch.tensor([0, 0, 0, -0.05, -0.05, -0.05, 0])
    assert_close(plain.turns[0].completion.extra["token_rewards"], expected)
    # a forced token between does not part an n-gram, and is not penalised; rewards that are there stay
    given = torch.tensor([0.0, 0, 0, 1, 0, 0, 0, 0])
    before = episode([1, 2, 3, 1, 9, 2, 3, 4], [1, 1, 1, 1, 0, 1, 1, 1], token_rewards=given)
    (forced,) = penalise([before], CTX)
    found = forced.turns[0].completion.extra["token_rewards"]
    assert_close(found, torch.tensor([0, 0, 0, 0.95, 0, -0.05, -0.05, 0]))
    assert given[3] == 1


def test_each_stream_has_its_discount():
    # the penalties of tokens 3 to 5 reach token 0 with .99^3 (1 + .99 + .9801) = 2.881788, the outcome with 1
    rewards = torch.tensor([[0, 0, 0, -0.05, -0.05, -0.05, 0]])
    one = {"episode": torch.tensor([0]), "step": torch.tensor([0]), "bootstrap_value": torch.zeros(1)}
    rows = Batch(
        **one, reward=torch.ones(1), is_last=torch.ones(1).bool(), token_rewards=rewards,
        action_mask=torch.ones(1, 7).bool(), values=torch.full((1, 7), 0.5),
    )  # fmt: skip
    out = RewardStreams({"reward": 1.0, "token_rewards": 0.99}, baseline="values")(rows, CTX)
    assert_close(out["returns"][0, 0], torch.tensor(1 - 0.05 * 2.881788))
    assert_close(out["returns"][0, 3:], torch.tensor([1 - 0.05 * 2.9701, 1 - 0.05 * 1.99, 1 - 0.05, 1.0]))
    assert_close(out["advantages"], out["returns"] - 0.5)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="ngram"):
        RepetitionRewards(ngram=0)
    with pytest.raises(ValueError, match="max_tokens"):
        CosineReward({}, max_tokens=0)
