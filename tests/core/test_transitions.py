"""Decisions as columns are the same decisions."""

from dataclasses import replace

import pytest
import torch

from mmrl.core.transitions import TransitionTable, TransitionView
from mmrl.core.types import Context, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.policies.control.policy import ControlPolicy
from mmrl.rollouts.env.fixed_horizon import FixedHorizon
from sims.gym import GymSim
from sims.task import SimTask


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return ControlPolicy(4, 2)


@pytest.fixture(scope="module")
def segments(policy):
    engine = LocalEngine(max_rows=3)  # more than one call per step
    engine.sync(policy, 7)
    task = SimTask(GymSim("CartPole-v1", max_episode_steps=12))
    return FixedHorizon(4, 30).collect([], Context(task, engine, policy, Sampling(), seed=1, iteration=0))


def test_columns_and_turns_make_the_same_batch(segments, policy):
    assert all(isinstance(segment.turns, TransitionView) for segment in segments)
    by_turn = collate([replace(segment, turns=list(segment.turns)) for segment in segments], policy)
    by_column = collate(segments, policy)
    assert set(by_turn) == set(by_column)
    for name in set(by_turn) - {"prompt_id"}:  # whose numbers mean nothing beyond the batch
        assert torch.equal(by_turn[name], by_column[name]), name
        assert by_turn[name].dtype == by_column[name].dtype, name
    assert by_column["prompt_id"].unique().numel() == by_column.rows == 120


def test_what_is_known_without_turns_is_what_the_turns_say(segments):
    for segment in segments:
        turns = list(segment.turns)
        assert segment.tokens == len(turns) and segment.env_reward == sum(turn.reward for turn in turns)
        assert turns[-1].completion.policy_version == 7
        assert (segment.following is None) == (segment.ended == "done")
    assert {segment.ended for segment in segments} >= {"time", "cut"}


def test_a_first_minibatch_has_ratio_one(segments, policy):
    batch = collate(segments, policy)
    assert torch.allclose(policy(batch).logprobs, batch["behavior_logprobs"], atol=1e-6)


def test_decisions_and_rewards_that_do_not_belong_together_are_refused(segments):
    with pytest.raises(ValueError, match="1 decisions and 2 rewards"):
        TransitionTable().add([segments[0].turns[0].completion], [1.0, 2.0])
