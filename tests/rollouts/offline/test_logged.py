from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Context, Sampling
from mmrl.data.collate import collate
from mmrl.data.parity import measure_staleness
from mmrl.engines.local import LocalEngine
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.offline.logged import LoggedEpisodes
from mmrl.rollouts.text.single_turn import SingleTurn
from mmrl.transforms.best_worst import BestWorst
from mmrl.transforms.filter import KeepSuccesses
from tests.policies.text.oracle import TINY
from tests.tiny_recipes import Counting


@pytest.fixture
def ctx():
    torch.manual_seed(0)
    policy, engine = TextPolicy(config=TINY), LocalEngine()
    engine.sync(policy, 0)
    return Context(Counting(), engine, policy, Sampling(max_tokens=4), seed=0, iteration=0, group_size=3)


def asked(ctx):
    return [(slot, ctx.task[slot + 5]) for slot in range(2)]


def test_a_log_is_what_a_rollout_played_and_is_read_again(ctx, tmp_path):
    path = tmp_path / "log.pt"
    first = LoggedEpisodes(str(path), SingleTurn(), count=4)
    result = first.collect(asked(ctx), ctx)
    played = SingleTurn().collect([(i, ctx.task[i]) for i in range(2)], Context(**{**vars(ctx), "purpose": "log"}))
    ours, theirs = collate(result, ctx.policy), collate(played, ctx.policy)
    for name in theirs:
        if name != "policy_version":
            assert_close(ours[name], theirs[name], msg=name)
    assert (ours["policy_version"] == -1).all()
    assert {e.turns[0].completion.prompt_id for e in result[:3]} == {(result[0].group, 0)}
    # from the file alone, and further on in the next iteration
    again = LoggedEpisodes(str(path))
    assert [e.output for e in again.collect(asked(ctx), ctx)] == [e.output for e in result]
    ctx = replace(ctx, iteration=1)
    assert {e.prompt.key for e in again.collect(asked(ctx), ctx)} == {ctx.task[2].key, ctx.task[3].key}
    ctx = replace(ctx, iteration=2)
    assert [e.output for e in again.collect(asked(ctx), ctx)] == [e.output for e in result]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_every_group_is_read_once_on_any_number_of_processes(ctx, tmp_path, world_size):
    """10 groups, 5 prompts an iteration: slot s of iteration i reads group 5 i + s, whichever process has the slot."""
    rollout = LoggedEpisodes(str(tmp_path / "log.pt"), SingleTurn(), count=10)
    slots = [(slot, ctx.task[0]) for slot in range(5)]
    read = []
    for iteration in range(4):
        here = {}
        for rank in range(world_size):
            of = replace(ctx, iteration=iteration, rank=rank, world_size=world_size, num_prompts=5, group_size=1)
            here |= {e.group: e.prompt.index for e in rollout.collect(slots[rank::world_size], of)}
        read.append([here[slot] for slot in range(5)])
    assert read == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]] * 2


def test_a_log_has_no_age(ctx, tmp_path):
    result = LoggedEpisodes(str(tmp_path / "log.pt"), SingleTurn(), count=2).collect(asked(ctx), ctx)
    ctx = replace(ctx, iteration=7)
    assert measure_staleness(collate(result, ctx.policy), ctx, allowed=0) == {}


def test_what_is_missing_or_of_another_task_is_refused(ctx, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no rollout\.play to make one"):
        LoggedEpisodes(str(tmp_path / "none.pt")).collect(asked(ctx), ctx)
    LoggedEpisodes(str(tmp_path / "log.pt"), SingleTurn(), count=2).collect(asked(ctx), ctx)
    torch.save([{"key": "other/train/0", "observations": [], "episodes": []}], tmp_path / "other.pt")
    with pytest.raises(ValueError, match="the log holds 'other/train/0'"):
        LoggedEpisodes(str(tmp_path / "other.pt")).collect(asked(ctx), ctx)


def test_best_and_worst_of_a_group(ctx, tmp_path):
    result = LoggedEpisodes(str(tmp_path / "log.pt"), SingleTurn(), count=2).collect(asked(ctx), ctx)
    for episode, reward in zip(result, (0.5, 1.0, 0.0, 0.7, 0.7, 0.7)):
        episode.reward = reward
    kept = BestWorst()(result, ctx)
    assert [(e.group, e.sample_index) for e in kept] == [(0, 1), (0, 2)]
    assert collate(kept, ctx.policy)["preference"].tolist() == [1, -1]
    assert [e.reward for e in KeepSuccesses()(result, ctx)] == [1.0]
    assert BestWorst()(result[3:], ctx) == []  # an iteration without a difference has no row
    (spare,) = BestWorst()(result[:1], ctx)  # that of a process without rows
    assert collate([spare], ctx.policy)["preference"].tolist() == [0]
