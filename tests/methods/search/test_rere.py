"""ReRe: rewards and advantages of ranked items by hand, and hit rates of ranks."""

import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Episode, Prompt
from mmrl.methods.search.rere import RankedHits, RankReward, rank_penalties
from mmrl.ops.advantage import group_advantage

REWARD = RankReward({"exact": 1.0})


def group(hits, number=0):
    return [Episode(Prompt(f"p/train/{number}"), number, i, scores={"exact": float(h)}) for i, h in enumerate(hits)]


def advantages(rewards):
    return group_advantage(torch.tensor(rewards), torch.zeros(len(rewards)).long(), "mean", "sample", 1e-4)


def test_rewards_and_advantages_by_hand():
    # w = 1, 1 / log2 3 = .630930, 1 / log2 4 = .5, 1 / log2 5 = .430677, their sum 2.561606
    hits = [False, False, True, False]
    assert rank_penalties(hits) == pytest.approx([-0.390380, -0.246302, 0, -0.168128], abs=1e-6)
    rewards = REWARD(group(hits))
    assert rewards == pytest.approx([-0.390380, -0.246302, 1, -0.168128], abs=1e-6)
    # mean .0487974, standard deviation over three .6407810
    assert_close(advantages(rewards), torch.tensor([-0.685271, -0.460459, 1.484209, -0.338479]), atol=1e-5, rtol=0)


def test_the_penalties_of_all_ranks_sum_to_one():
    given = [-sum(rank_penalties([i == hit for i in range(4)])) for hit in range(4)]
    assert [1 - part for part in given] == pytest.approx([0.390380, 0.246302, 0.195190, 0.168128], abs=1e-6)


def test_a_group_without_the_target_has_no_advantage():
    rewards = REWARD(group([False] * 4))
    assert rewards == [0] * 4 and advantages(rewards).tolist() == [0] * 4


def test_the_rank_is_the_sample_index_and_the_weight_scales():
    episodes = group([False, False, True, False])
    turned = RankReward({"exact": 1.0}, penalty_weight=0.5)(episodes[::-1])
    assert turned == pytest.approx([-0.084064, 1, -0.123151, -0.195190], abs=1e-6)
    assert RankReward({"exact": 1.0}, penalty_weight=0.0)(episodes) == [0, 0, 1, 0]


def test_hit_rates_by_hand():
    # hits at the ranks 0, 2 and none; ndcg@3 = (1 + 1 / log2 4 + 0) / 3
    groups = [[True, False, False], [False, False, True], [False] * 3]
    episodes = [episode for number, hits in enumerate(groups) for episode in group(hits, number)]
    named = RankedHits((1, 2, 3))(episodes[::-1])
    assert (named["hr@1"], named["hr@2"], named["hr@3"]) == pytest.approx((1 / 3, 1 / 3, 2 / 3))
    assert (named["ndcg@1"], named["ndcg@3"]) == pytest.approx((1 / 3, (1 + 1 / math.log2(4)) / 3))
    assert (named["prompts"], named["errors"]) == (3, 0)
    with pytest.raises(ValueError, match="hr@4"):
        RankedHits((4,))(episodes)
    with pytest.raises(ValueError, match="at least 1"):
        RankedHits(())
