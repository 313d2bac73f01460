"""Sampled episodes as demonstrations: the executed chunks are imitated, with new noise in every iteration."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import FIRST_ADDED_GROUP, Context, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.robots.rwfm import AddExpertEpisodes, AsDemonstrations
from mmrl.objectives.imitation_chain import DenoisingLoss
from mmrl.rollouts.env.episodic import EpisodicRollout
from mmrl.rollouts.offline.demonstrations import Demonstrations
from mmrl.transforms.filter import KeepSuccesses
from sims.tabletop import Reach
from sims.task import SimTask
from tests.laws.heads import build_policy

LAWS = [lambda: AddExpertEpisodes(4)]


@pytest.fixture(scope="module")
def played():
    """Policy, context and three episodes, of which the second one has succeeded."""
    policy = build_policy("flow_sde")
    engine = LocalEngine()
    engine.sync(policy, 0)
    task = SimTask(Reach(image_size=16), count=3)
    ctx = Context(task, engine, policy, Sampling(decode="mean"), seed=0, iteration=0, group_size=1)
    episodes = EpisodicRollout().collect(list(enumerate(task[i] for i in range(3))), ctx)
    for episode, reward in zip(episodes, (0.0, 1.0, 0.5)):
        episode.reward = reward
    return policy, ctx, episodes


def test_the_executed_chunks_of_successes_are_imitated(played):
    policy, ctx, episodes = played
    (shown,) = AsDemonstrations()(KeepSuccesses()(episodes, ctx), ctx)
    assert (shown.source, shown.group, shown.reward, len(shown.turns)) == ("demo", 1, 1.0, len(episodes[1].turns))
    batch = collate([shown], policy)
    assert batch["is_demo"].all() and batch["action_mask"].all()
    executed = torch.from_numpy(np.stack([turn.completion.output for turn in episodes[1].turns]))
    assert_close(batch["action"], executed, rtol=0, atol=1e-6)
    loss = DenoisingLoss()(policy(batch), batch).mean()
    assert torch.isfinite(loss) and loss > 0
    loss.backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in policy.parameters())


def test_observations_and_rewards_stay_and_noise_is_new_in_every_iteration(played):
    _, ctx, episodes = played
    before = [turn.completion.observation for turn in episodes[1].turns]
    (first,), (again,), (later,) = (
        AsDemonstrations()([episodes[1]], replace(ctx, iteration=iteration)) for iteration in (0, 0, 1)
    )
    for turn, observation in zip(first.turns, before):
        assert turn.completion.observation is observation
    assert [turn.reward for turn in first.turns] == [turn.reward for turn in episodes[1].turns]
    seeds = [[int(turn.completion.extra["row_seed"]) for turn in each.turns] for each in (first, again, later)]
    assert seeds[0] == seeds[1] and not set(seeds[0]) & set(seeds[2]) and len(set(seeds[0])) == len(first.turns)
    assert AsDemonstrations()([], ctx) == [] and episodes[1].source == "policy"


def test_the_experts_episodes_are_those_that_a_clone_imitates_and_played_once(played, monkeypatch):
    policy, ctx, episodes = played
    own = AsDemonstrations()([episodes[1]], ctx)
    part, asked = AddExpertEpisodes(2), []
    play = SimTask.demonstrations
    monkeypatch.setattr(SimTask, "demonstrations", lambda self, prompts: asked.extend(prompts) or play(self, prompts))
    first, second = part(own, ctx), part(own, replace(ctx, iteration=1))
    assert [prompt.index for prompt in asked] == [0, 1]
    assert first[0] is own[0] and [episode.group for episode in first] == [1, FIRST_ADDED_GROUP, FIRST_ADDED_GROUP + 1]
    cloned = Demonstrations().collect([(i, ctx.task[i]) for i in range(2)], ctx)
    for shown, again, expected in zip(first[1:], second[1:], cloned, strict=True):
        assert shown.source == "demo" and len(shown.turns) == len(expected.turns)
        for one, other, like in zip(shown.turns, again.turns, expected.turns):
            assert torch.equal(one.completion.action, like.completion.action)
            assert one.completion.extra["row_seed"] != other.completion.extra["row_seed"]
    batch = collate(first, policy)
    assert batch["is_demo"].all()
    ranks = [part(own, replace(ctx, rank=rank, world_size=2)) for rank in range(2)]
    assert [episode.group for shown in ranks for episode in shown[1:]] == [FIRST_ADDED_GROUP, FIRST_ADDED_GROUP + 1]
    with pytest.raises(ValueError, match="must be at least 1"):
        AddExpertEpisodes(0)
