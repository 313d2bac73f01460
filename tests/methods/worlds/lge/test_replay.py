"""LGE's replay: targets by hand and by a loop, what is stored and drawn, and a resumed buffer."""

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Context, Episode, Prompt, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.worlds.lge.guide import GuidedExplorer
from mmrl.methods.worlds.lge.replay import DecisionReplay, StoredDecision, q_learning_targets, read_decisions
from mmrl.rollouts.text.environment import EnvironmentRollout
from tasks.house import House

TASK = House(max_turns=4, idle=1)


def play(iteration=0, episodes=3):
    torch.manual_seed(0)
    policy, engine = GuidedExplorer(buckets=512, embedding=8, hidden=8, k=3), LocalEngine()
    engine.sync(policy, iteration)
    ctx = Context(TASK, engine, policy, Sampling(temperature=0.5), seed=0, iteration=iteration)
    return EnvironmentRollout().collect([(i, TASK[i]) for i in range(episodes)], ctx), ctx


def decision(number, reward=0.0):
    return StoredDecision("p/0", {"number": torch.tensor(number)}, 0, reward, None)


def test_targets_by_hand():
    """r = .25 and the largest next Q = .5 with gamma .9: .7; the end of an episode: r alone."""
    targets = q_learning_targets(
        torch.tensor([0.25, 1.0]), torch.tensor([[0.5, -1.0], [9.0, 9.0]]), torch.tensor([False, True]), 0.9
    )
    assert_close(targets, torch.tensor([0.7, 1.0]))


def test_decisions_of_an_episode_keep_every_admissible_action_of_what_follows():
    (episode, *_), _ = play()
    episode.reward = 0.5
    decisions = read_decisions(episode)
    assert [each.reward for each in decisions] == [
        turn.reward + 0.5 * (turn is episode.turns[-1]) for turn in episode.turns
    ]
    for each, after in pairwise(decisions):
        assert torch.equal(each.following["state_words"], after.observation["state_words"])
        assert len(each.following["admissible_sizes"]) > 3  # more than the guide left
    assert decisions[-1].following is None


def test_the_rows_have_the_targets_of_a_loop():
    episodes, ctx = play()
    part = DecisionReplay(rows=64, gamma=0.9, batch_size=5)
    rows = part(episodes, ctx)
    assert len(rows) == sum(len(episode.turns) for episode in episodes)
    assert {row.group for row in rows} == set(range(3, 3 + len(rows)))  # none of the played ones
    batch = collate(rows, ctx.policy)
    assert (batch["policy_version"] == -1).all() and (batch["temperature"] == 0.5).all()
    stored = [each for episode in episodes for each in read_decisions(episode)]
    expected = []
    for each in stored:
        target = each.reward
        if each.following is not None:
            with torch.no_grad():
                target += 0.9 * ctx.policy.score(ctx.policy.collate([each.following]))[0].max().item()
        expected.append(target)
    assert_close(batch["returns"].sort().values, torch.tensor(expected).sort().values)


def test_half_of_the_rows_are_of_episodes_that_earned_something():
    part = DecisionReplay(rows=8)
    part.buffers = {"earned": [decision(i, 1.0) for i in range(10)], "others": [decision(i) for i in range(90)]}
    decisions = part.draw(np.random.default_rng(0))
    assert sum(each.reward for each in decisions) == 4 and len({id(each) for each in decisions}) == 8
    part.buffers["earned"] = part.buffers["earned"][:1]
    assert sum(each.reward for each in part.draw(np.random.default_rng(0))) == 1
    part.buffers = {"earned": [decision(i, 1.0) for i in range(10)], "others": [decision(0)]}
    assert sum(each.reward for each in part.draw(np.random.default_rng(0))) == 7


def test_episodes_that_earned_something_are_told_apart():
    (episode, *others), ctx = play()
    episode.turns[0].reward = 0.25
    part = DecisionReplay(rows=2, capacity=3)
    part([episode, *others], ctx)
    earned = [each.reward for each in read_decisions(episode)][-3:]
    assert [each.reward for each in part.buffers["earned"]] == earned and len(part.buffers["others"]) == 3


def test_a_resumed_buffer_goes_on_like_the_other():
    one, other = DecisionReplay(rows=6), DecisionReplay(rows=6)
    one(*play())
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for ours, theirs in zip(one(*play(1)), other(*play(1)), strict=True):
        for name in ("action", "extra"):
            a, b = (getattr(each.turns[0].completion, name) for each in (ours, theirs))
            assert torch.equal(a, b) if name == "action" else torch.equal(a["returns"], b["returns"])


def test_refusals():
    for options in ({"rows": 0}, {"gamma": 1.5}, {"priority_fraction": -1.0}):
        with pytest.raises(ValueError, match=rf"DecisionReplay\.{next(iter(options))} must be"):
            DecisionReplay(**options)
    episodes, ctx = play()
    with pytest.raises(ValueError, match=r"trainer\.devices=1"):
        DecisionReplay()(episodes, Context(**{**vars(ctx), "world_size": 2}))
    assert DecisionReplay()([Episode(Prompt("p/0"), 0, 0, list[Turn]())], ctx) == []
