"""Self-rewards, class weights and mixed advantages by hand; the self-reward token and its confidence in a policy."""

import math
import warnings

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Context, Episode, PolicyOutput, Prompt, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.data.minibatches import zero_padding
from mmrl.methods.advantages.laser.confidence import Confidence, Discrimination, WeightedVote
from mmrl.methods.advantages.laser.self_reward import (
    MixedAdvantage,
    SelfReward,
    SelfRewardLoss,
    SelfRewardToken,
    balanced_weights,
    self_reward,
)
from mmrl.policies.text.policy import TextPolicy
from tests.laws.example import Example
from tests.policies.text.oracle import TINY, completions, decided, plain_logits

LAWS = [
    Example(SelfReward()),
    Example(SelfReward(reference=-3.0)),
    Example(MixedAdvantage("self_reward", weight=0.3)),
    Example(SelfRewardLoss()),
    Example(SelfRewardLoss(scale=0.5, reference=-3.0)),
    lambda: Confidence("1"),
    lambda: SelfRewardToken("1"),
]

LOGPROBS = torch.tensor([[-1.0, -13.0], [-22.5, -1.0], [torch.nan, -18.0]])


SELF_REWARD_MASK = torch.tensor([[False, True], [True, False], [False, True]])


REWARD = torch.tensor([1.0, 0.0, 1.0])


def test_the_self_reward_by_hand():
    # .1 (-13 + 23), .1 (-22.5 + 23), .1 (-18 + 23)
    score = self_reward(LOGPROBS, -23.0, SELF_REWARD_MASK, 0.1)
    assert_close(score, torch.tensor([1.0, 0.05, 0.5]))
    assert_close((score - REWARD).square().mean(), torch.tensor(0.0841667))
    assert_close(self_reward(LOGPROBS, torch.full((3, 2), -23.0), SELF_REWARD_MASK, 0.1), score)
    assert self_reward(LOGPROBS, -23.0, SELF_REWARD_MASK & False, 0.1).tolist() == [0, 0, 0]


def test_both_classes_count_the_same():
    # two right and one wrong: 3 / (2 * 2) and 3 / (2 * 1)
    weights = balanced_weights(REWARD == 1, torch.ones(3).bool(), 2, 1)
    assert_close(weights, torch.tensor([0.75, 1.5, 0.75]))
    error = (self_reward(LOGPROBS, -23.0, SELF_REWARD_MASK, 0.1) - REWARD).square()
    assert_close((weights * error).mean(), torch.tensor(0.06375))
    # one right and two wrong: 3 / 2 and 3 / 4
    assert_close(balanced_weights(REWARD == 0, torch.ones(3).bool(), 1, 2), torch.tensor([0.75, 1.5, 0.75]))
    assert balanced_weights(REWARD == 1, torch.tensor([True, False, False]), 1, 0).tolist() == [0.5, 0, 0]


OWN = torch.tensor([0.57735, -1.154701, 0.57735])


def mixed(score, annotator, iteration=0):
    ctx = Context(None, None, None, Sampling(), seed=0, iteration=iteration)
    batch = Batch(
        advantages=OWN[:, None].expand(3, 2),
        action_mask=torch.tensor([[True, False]] * 3),
        group=torch.zeros(3).long(),
        episode=torch.arange(3),
        self_reward=torch.tensor(score),
    )
    return annotator(batch, ctx)["advantages"]


def test_mixed_advantages_by_hand():
    # s = (1, .05, .5): mean .516667, sample std .475219, B = (1.017074, -.982003, -.035072); .9 A + .1 B
    result = mixed([1.0, 0.05, 0.5], MixedAdvantage("self_reward", weight=0.1))
    assert_close(result[:, 0], torch.tensor([0.621323, -1.137431, 0.516108]), rtol=0, atol=2e-6)
    assert (result[:, 1] == 0).all()
    assert_close(mixed([1.7, 0.05, 0.5], MixedAdvantage("self_reward")), result)  # held in [0, 1]
    # -.7 counts as 0: s = (1, 0, .5) has the mean .5 and the std .5, B = (1, -1, 0)
    result = mixed([1.0, -0.7, 0.5], MixedAdvantage("self_reward"))[:, 0]
    assert_close(result, torch.tensor([0.619615, -1.139231, 0.519615]), rtol=0, atol=2e-6)


def test_a_group_that_is_trusted_alike_keeps_its_own():
    # (.5, .6, .7) has the sample std .1, which is not more than .1
    assert_close(mixed([0.5, 0.6, 0.7], MixedAdvantage("self_reward", min_std=0.11))[:, 0], OWN)
    assert_close(mixed([1.0, 0.05, 0.5], MixedAdvantage("self_reward", start_iteration=3), iteration=2)[:, 0], OWN)
    assert_close(mixed([0.5, 0.75, 1.0], MixedAdvantage("self_reward", min_std=0.25))[:, 0], OWN)  # its std is .25


CTX = Context(None, None, None, Sampling(), seed=0, iteration=0)


def scored_rows(**columns):
    """Two wrong answers and a right one with the token, and three rows without it, which count nowhere."""
    tokens = torch.tensor([[False, True], [True, False], [False, True]] + [[False, False]] * 3)
    logprobs = torch.cat([LOGPROBS, torch.zeros(3, 2)])
    reward = torch.tensor([0.0, 0.0, 1.0, 0.5, 1.0, 0.0])
    return Batch(self_reward_mask=tokens, old_logprobs=logprobs, episode_reward=reward, **columns)


@pytest.mark.parametrize("reference, columns", [(-23.0, {}), (None, {"ref_logprobs": torch.full((6, 2), -23.0)})])
def test_self_rewards_and_weights_of_a_batch_by_hand(reference, columns):
    # one right and two wrong of three: 3 / (2 * 1) and 3 / (2 * 2)
    out = SelfReward(reference=reference)(scored_rows(**columns), CTX)
    assert_close(out["self_reward"], torch.tensor([1.0, 0.05, 0.5, 0, 0, 0]))
    assert_close(out["self_reward_weight"], torch.tensor([0.75, 0.75, 1.5, 0, 0, 0]))


def test_mean_self_rewards_of_a_batch_by_hand():
    # wrong: (1 + .05) / 2; right: .5; the nines have no token
    batch = scored_rows(self_reward=torch.tensor([1.0, 0.05, 0.5, 9, 9, 9]))
    assert SelfReward().metrics(batch, CTX) == pytest.approx({"right": 0.5, "wrong": 0.525})
    assert SelfReward().metrics(batch.select(torch.tensor([0, 4])), CTX) == pytest.approx({"wrong": 1.0})


def test_an_answer_that_is_neither_right_nor_wrong_is_refused():
    batch = scored_rows().with_columns(episode_reward=torch.tensor([0.5] + [0.0] * 5))
    with pytest.raises(ValueError, match=r"one earned 0\.5"):
        SelfReward(reference=-23.0)(batch, CTX)


def test_the_loss_of_the_self_reward_by_hand():
    # s = (1, .05, .5) against (1, 0, 1) with the weights 2, 4 and 3: 2 * 0, 4 * .0025, 3 * .25
    batch = Batch(
        self_reward_mask=SELF_REWARD_MASK, episode_reward=REWARD, self_reward_weight=torch.tensor([2.0, 4, 3])
    )
    out = PolicyOutput(LOGPROBS, torch.zeros(3, 2))
    assert_close(SelfRewardLoss(reference=-23.0)(out, batch), torch.tensor([0.0, 0.01, 0.75]))
    batch = batch.with_columns(ref_logprobs=torch.full((3, 2), -23.0))
    assert_close(SelfRewardLoss()(out, batch), torch.tensor([0.0, 0.01, 0.75]))


PROMPTS = [Prompt(f"text/train/{i}", ({"role": "user", "content": t},)) for i, t in enumerate(("1+1=", "longer", "9"))]


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return decided(TextPolicy(config=TINY)).eval()


@pytest.fixture(scope="module")
def episodes(policy):
    """The first answer was cut off, the others ended."""
    done = completions(policy, PROMPTS, Sampling(max_tokens=6, stop=tuple("abcdefgh0123")))
    return [Episode(p, i, 0, [Turn(c)], ended="done" if i else "length") for i, (p, c) in enumerate(zip(PROMPTS, done))]


def context(policy):
    return Context(None, None, policy, Sampling(), seed=0, iteration=0)


def test_it_is_scored_where_it_stands_and_changes_nothing_else(policy, episodes):
    ctx = context(policy)
    batch, plain = collate(SelfRewardToken("<unk>")(episodes, ctx), policy), collate(episodes, policy)
    with torch.no_grad():
        out, before = policy(batch), policy(plain)
    assert (
        batch["self_reward_mask"].sum(1).tolist() == [0, 1, 1]
        and not (batch["self_reward_mask"] & batch["action_mask"]).any()
    )
    assert (batch["action"][batch["self_reward_mask"]] == policy.tokenizer.unk_token_id).all()
    width = plain["action_mask"].shape[1]
    assert (
        torch.equal(batch["action_mask"][:, :width], plain["action_mask"]) and not batch["action_mask"][:, width:].any()
    )
    assert_close(out.logprobs[batch["action_mask"]], before.logprobs[plain["action_mask"]])
    for row, episode in enumerate(SelfRewardToken("<unk>")(episodes, ctx)):
        if batch["self_reward_mask"][row].any():
            last = plain_logits(policy, episode.turns[0].completion)[-1].log_softmax(-1)
            assert_close(out.logprobs[row][batch["self_reward_mask"][row]][0], last[policy.tokenizer.unk_token_id])
    assert_close(
        zero_padding(batch.with_columns(ref_logprobs=out.logprobs))["ref_logprobs"][batch["self_reward_mask"]],
        out.logprobs[batch["self_reward_mask"]],
    )


def test_confidence_is_noted_and_told_apart(policy, episodes):
    noted = Confidence("<unk>", scale=0.1, reference=-5.0)(episodes, context(policy))
    batch = collate(SelfRewardToken("<unk>")(episodes, context(policy)), policy)
    with torch.no_grad():
        lp = policy(batch).logprobs
    reported = [e.info["confidence"] for e in noted]
    assert reported[0] == 0 and reported[1:] == pytest.approx(
        [0.1 * (float(lp[i][batch["self_reward_mask"][i]]) + 5) for i in (1, 2)], abs=1e-5
    )
    assert [e.info["answer"] for e in noted] == [e.output for e in episodes]
    failed = Episode(PROMPTS[0], 0, 3, ended="error")  # it has no turn to ask about
    part = Confidence("<unk>", scale=0.1, reference=-5.0)
    mixed_up = part([episodes[0], failed, *episodes[1:]], context(policy))
    assert [e.info.get("confidence") for e in mixed_up] == pytest.approx([0, None, *reported[1:]], abs=1e-5)
    assert part([failed], context(policy)) == [failed]


def episodes_with_confidence(rows):
    """(group, right, confidence, answer)."""
    return [
        Episode(PROMPTS[g], g, i, scores={"exact": right}, info={"confidence": c, "answer": a})
        for i, (g, right, c, a) in enumerate(rows)
    ]


def test_discrimination_and_votes_by_hand():
    rows = [(0, 1.0, 0.9, "2"), (0, 0.0, 0.4, "3"), (0, 0.0, 0.2, "3 "), (1, 1.0, 0.4, "x"), (1, 0.0, -1.0, "y")]
    # right .9 and .4 against wrong .4, .2, -1: 3 + 2.5 of 6 pairs
    assert Discrimination()(episodes_with_confidence(rows))["mean"] == pytest.approx(5.5 / 6)
    # prompt 0: "3" has two votes, but "2" the weight .9 against .6; prompt 1: "x" leads both ways
    vote = WeightedVote()(episodes_with_confidence(rows))
    assert (vote["mean"], vote["majority"], vote["n"]) == (1.0, 0.5, 2.0)
    assert (
        Discrimination()(episodes_with_confidence(rows[:1]))["mean"]
        != Discrimination()(episodes_with_confidence(rows[:1]))["mean"]
    )  # not a number


def test_bad_tokens_and_samplings_are_refused(policy, episodes):
    with pytest.raises(ValueError, match=r"'<nothing>' is not one of the policy's vocabulary.*<unk>"):
        SelfRewardToken("<nothing>")(episodes, context(policy))
    cut = completions(policy, PROMPTS[:1], Sampling(max_tokens=3, top_k=5))
    with pytest.raises(ValueError, match=r"sampling\.top_k=0"):
        SelfRewardToken("<unk>")([Episode(PROMPTS[0], 0, 0, [Turn(cut[0])])], context(policy))
    with pytest.raises(KeyError, match=r"data\.evaluation\.transforms"):
        Discrimination()([Episode(PROMPTS[0], 0, 0, scores={"exact": 1.0})])
    assert "self_reward_mask" not in Batch(action_mask=torch.ones(1, 1).bool())


def test_an_area_needs_a_right_and_a_wrong_answer():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = Discrimination()(episodes_with_confidence([(0, 1.0, 0.9, "2"), (0, 1.0, 0.4, "3")]))
    assert math.isnan(values["mean"]) and values["right"] == 2


def test_a_weight_below_zero_counts_nothing_in_a_vote():
    # "4" has .3 + 0 against .1; "5" has .3 against 0
    for rows in (
        [(0, 1.0, 0.3, "4"), (0, 1.0, -1.0, "4"), (0, 0.0, 0.1, "5")],
        [(0, 0.0, -0.2, "4"), (0, 1.0, 0.3, "5")],
    ):
        assert WeightedVote()(episodes_with_confidence(rows))["mean"] == 1
