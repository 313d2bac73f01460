"""Demonstrations in the place of groups that failed."""

import pytest
import torch

from mmrl.engines.local import LocalEngine
from mmrl.episodes.demonstrate import Demonstrate
from mmrl.episodes.filter import DropZeroVariance
from mmrl.learners.collate import collate
from mmrl.policies.action_token import ActionTokenPolicy
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.scoring import score
from mmrl.rollouts.env import EpisodicRollout
from mmrl.stages.advantage import GroupAdvantage
from mmrl.types import Context, Sampling
from sims.tabletop import Reach
from sims.task import SimTask


@pytest.fixture(scope="module")
def played():
    torch.manual_seed(0)
    task = SimTask(Reach(image_size=16, threads=1))
    sizes = {"hidden_size": 16, "layers": 1, "heads": 2, "intermediate_size": 16, "visual_tokens": 2}
    sizes |= {name: size for name, size in task.sim.sizes().items() if name != "processor"}
    policy = ActionTokenPolicy(bins=8, freeze_vision=True, **sizes)
    engine = LocalEngine()
    engine.sync(policy, 0)
    ctx = Context(task=task, engine=engine, policy=policy, sampling=Sampling(), seed=0, iteration=0, group_size=2)
    episodes = EpisodicRollout().collect([(slot, task[slot]) for slot in range(3)], ctx)
    for episode in episodes:  # the second prompt is solved once, the others never
        episode.info["scores"] = {"success": float((episode.group, episode.sample_index) == (1, 0))}
    score(episodes, task, WeightedSum({"success": 1.0}))
    return episodes, ctx


def test_failed_groups_are_shown_and_the_rest_is_left_alone(played):
    episodes, ctx = played
    mixed = Demonstrate()(list(episodes), ctx)
    assert [(e.group, e.source) for e in mixed] == [(0, "demo"), (1, "policy"), (1, "policy"), (2, "demo")]
    expert = ctx.task.demonstrations([mixed[0].prompt])[0]
    assert len(expert) == len(mixed[0].turns)
    raw, output = expert[0]
    assert torch.equal(mixed[0].turns[0].completion.action, ctx.policy.encode_demonstration(raw, output))
    assert [e.group for e in DropZeroVariance()(mixed, ctx)] == [0, 1, 1, 2]


def test_rows_of_both_kinds_make_one_batch(played):
    episodes, ctx = played
    batch = GroupAdvantage()(collate(DropZeroVariance()(Demonstrate()(list(episodes), ctx), ctx), ctx.policy), ctx)
    demo = batch["is_demo"]
    assert demo.any() and not demo.all() and set(batch["group"][demo].tolist()) == {0, 2}
    assert (batch["advantages"][demo] == 0).all() and (batch["advantages"][~demo] != 0).any()
    assert "obs.image" not in batch and batch["obs.visual"].isfinite().all()  # the frozen part is not run again
    assert torch.isfinite(ctx.policy(batch).logprobs[batch["action_mask"]]).all()


def test_only_a_share_is_shown_and_a_score_must_exist(played):
    episodes, ctx = played
    some = Demonstrate(max_fraction=0.5)(list(episodes), ctx)
    assert [(e.group, e.source) for e in some if e.group != 1] == [(0, "demo"), (2, "policy"), (2, "policy")]
    with pytest.raises(KeyError, match=r"episodes\.demonstrate\.score_name='solved'"):
        Demonstrate(score_name="solved")(list(episodes), ctx)
    with pytest.raises(ValueError, match="max_fraction"):
        Demonstrate(max_fraction=0)
