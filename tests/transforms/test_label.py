"""The task's answer as a member of the group: what it earns, and what is trained on it."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.group_advantage import GroupAdvantage
from mmrl.annotators.logprobs import OldLogprobs
from mmrl.core.types import Collector, Context, Episode, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.policies.text.policy import TextPolicy
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.scoring import Scorer
from mmrl.transforms.label import AddDemonstration
from tasks.arithmetic import Arithmetic
from tests.policies.text.oracle import TINY, completions, decided, plain_logits

TASK = Arithmetic()


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return decided(TextPolicy(config=TINY)).eval()


@pytest.fixture(scope="module")
def episodes(policy):
    prompts = [TASK[i] for i in (0, 1) for _ in range(4)]
    done = completions(policy, prompts, Sampling(max_tokens=4))
    return [
        Episode(p, i // 4, i % 4, [Turn(replace(c, prompt_id=p.key))]) for i, (p, c) in enumerate(zip(prompts, done))
    ]


def context(policy):
    scorer = Scorer(TASK, WeightedSum({"exact": 1.0}))
    return Context(TASK, None, policy, Sampling(), seed=0, iteration=0, group_size=4, collector=scorer)


def advantages(policy, episodes, rewards, part):
    episodes = [replace(episode, reward=r) for episode, r in zip(episodes, rewards)]
    batch = collate(part(episodes, context(policy)), policy)
    result = GroupAdvantage("std", "mean", epsilon=0.0)(batch, context(policy))
    return batch, result["advantages"][:, 0]


def test_hand_computed(policy, episodes):
    """Nobody solved the first problem: mean .2, std .4. Half solved the second: the label earns their mean."""
    part = AddDemonstration(yields=True)
    batch, result = advantages(policy, episodes, [0.0] * 4 + [0.0, 1.0, 0.0, 1.0], part)
    assert batch["is_demo"].tolist() == [False] * 4 + [True] + [False] * 4 + [True]
    a = 0.5 / 0.2**0.5  # population std of (0, 1, 0, 1, .5): sqrt(.2), so that A = 1.118
    assert_close(result, torch.tensor([-0.5] * 4 + [2.0] + [-a, a, -a, a, 0.0]), rtol=0, atol=1e-6)
    _, result = advantages(policy, episodes, [1.0] * 8, part)
    assert (result == 0).all()
    _, kept = advantages(policy, episodes, [0.0] * 4 + [0.0, 1.0, 0.0, 1.0], AddDemonstration())
    assert float(kept[-1]) > 0.8  # without yielding it goes on pulling: (1 - .6) / .49
    _, given = advantages(policy, episodes, [0.0] * 8, AddDemonstration(reward=0.0))
    assert (given == 0).all()


def test_it_is_the_tasks_answer_as_the_old_policy_finds_it(policy, episodes):
    episodes = AddDemonstration()(list(episodes), context(policy))
    label = episodes[4]
    assert (label.source, label.output, label.sample_index, label.reward) == ("demo", TASK.demonstrate(0), 4, 1.0)
    batch = OldLogprobs()(collate(episodes, policy), context(policy))
    assert batch["prompt_id"].tolist() == [0] * 5 + [1] * 5  # read once
    done = label.turns[0].completion
    oracle = plain_logits(policy, done).log_softmax(-1).gather(-1, done.action[:, None])[:, 0]
    assert_close(batch["old_logprobs"][4][batch["action_mask"][4]], oracle)
    own = batch["action_mask"] & ~batch["is_demo"][:, None]
    assert_close(batch["old_logprobs"][own], batch["behavior_logprobs"][own])


def test_what_it_cannot_do_is_said(policy, episodes):
    ctx = context(policy)
    with pytest.raises(RuntimeError, match="no reward function here"):
        AddDemonstration()(list(episodes), replace(ctx, collector=Collector()))
    twice = [replace(episodes[0], turns=[*episodes[0].turns] * 2)]
    with pytest.raises(ValueError, match="answers of one row"):
        AddDemonstration()(twice, ctx)
    cut = completions(policy, [TASK[0]], Sampling(max_tokens=2, top_k=3))
    with pytest.raises(ValueError, match="without truncation"):
        AddDemonstration()([Episode(TASK[0], 0, 0, [Turn(cut[0])])], ctx)
