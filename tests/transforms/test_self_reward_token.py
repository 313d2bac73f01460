"""A token after the answer: scored by transformers' own forward alike, learned by nobody as a choice."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.batch import Batch
from mmrl.data.collate import collate
from mmrl.data.minibatches import zero_padding
from mmrl.methods.laser_confidence import Confidence, Discrimination, WeightedVote
from mmrl.policies.text.policy import TextPolicy
from mmrl.transforms.self_reward_token import SelfRewardToken
from mmrl.types import Context, Episode, Prompt, Sampling, Turn
from tests.policies.text.oracle import TINY, completions, decided, plain_logits

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


def judged(rows):
    """(group, right, confidence, answer)."""
    return [
        Episode(PROMPTS[g], g, i, scores={"exact": right}, info={"confidence": c, "answer": a})
        for i, (g, right, c, a) in enumerate(rows)
    ]


def test_discrimination_and_votes_by_hand():
    rows = [(0, 1.0, 0.9, "2"), (0, 0.0, 0.4, "3"), (0, 0.0, 0.2, "3 "), (1, 1.0, 0.4, "x"), (1, 0.0, -1.0, "y")]
    # right .9 and .4 against wrong .4, .2, -1: 3 + 2.5 of 6 pairs
    assert Discrimination()(judged(rows))["mean"] == pytest.approx(5.5 / 6)
    # prompt 0: "3" has two votes, but "2" the weight .9 against .6; prompt 1: "x" leads both ways
    vote = WeightedVote()(judged(rows))
    assert (vote["mean"], vote["majority"], vote["n"]) == (1.0, 0.5, 2.0)
    assert Discrimination()(judged(rows[:1]))["mean"] != Discrimination()(judged(rows[:1]))["mean"]  # not a number


def test_bad_tokens_and_samplings_are_refused(policy, episodes):
    with pytest.raises(ValueError, match=r"'<nothing>' is not one of the policy's vocabulary.*<unk>"):
        SelfRewardToken("<nothing>")(episodes, context(policy))
    cut = completions(policy, PROMPTS[:1], Sampling(max_tokens=3, top_k=5))
    with pytest.raises(ValueError, match=r"sampling\.top_k=0"):
        SelfRewardToken("<unk>")([Episode(PROMPTS[0], 0, 0, [Turn(cut[0])])], context(policy))
    with pytest.raises(KeyError, match=r"data\.evaluation\.transforms"):
        Discrimination()([Episode(PROMPTS[0], 0, 0, scores={"exact": 1.0})])
    assert "self_reward_mask" not in Batch(action_mask=torch.ones(1, 1).bool())
