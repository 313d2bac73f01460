"""Action scorer in text environments: whole episodes, the rows that they give, and imitation of the expert."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.callbacks.first_prompt import format_episode
from mmrl.core.types import Context, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.policies.text.actions.action_scorer import ActionScorer
from mmrl.rollouts.text.environment import EnvironmentRollout
from mmrl.rollouts.text.environment_demonstrations import EnvironmentDemonstrations
from mmrl.samples.record import SampleFormat
from tasks.gridworld import GridWorld
from tasks.wordle import Wordle
from tests.policies.text.oracle import TINY

TASK = GridWorld(rows=4, columns=5, max_turns=4, form="words")


def context(task):
    torch.manual_seed(0)
    policy, engine = ActionScorer(config=dict(TINY), value_head=True), LocalEngine()
    engine.sync(policy, 0)
    return policy, Context(task, engine, policy, Sampling(), seed=0, iteration=0, group_size=2)


def test_every_turn_of_an_episode_is_an_admissible_action():
    policy, ctx = context(TASK)
    episodes = EnvironmentRollout(history=1).collect([(i, TASK[i]) for i in range(4)], ctx)
    assert {turn.completion.output for e in episodes for turn in e.turns} <= set("UDLR")
    assert all(e.info["counts"] == {"environment/invalid": 0, "environment/unparsable": 0} for e in episodes)
    batch = collate(episodes, policy)
    assert batch["action"].shape == (sum(len(e.turns) for e in episodes), 1)
    with torch.no_grad():
        out = policy(batch)
    assert_close(out.logprobs, batch["behavior_logprobs"], atol=1e-5, rtol=0)
    assert_close(out.values, batch["values"], atol=1e-5, rtol=0)


def test_the_experts_actions_are_their_places():
    _, ctx = context(TASK)
    (episode,) = EnvironmentDemonstrations().collect([(0, TASK[0])], ctx)
    actions = ["UDLR"[int(turn.completion.action)] for turn in episode.turns]
    assert actions == TASK.script(0) and episode.ended == "done"


def test_a_person_reads_the_prompt_and_the_chosen_actions():
    policy, ctx = context(TASK)
    episode, *_ = EnvironmentRollout().collect([(0, TASK[0])], ctx)
    actions = [turn.completion.output for turn in episode.turns]
    turns = SampleFormat(policy).describe_episode(episode)["turns"]
    assert [turn["tokens"] for turn in turns] == [[action] for action in actions]
    assert all("Actions: U, D, L, R" in turn["context"] for turn in turns[1:])
    text = format_episode(episode, policy, 2000)
    assert "Actions: U, D, L, R" in text and f"1 choice, ended by {episode.ended}:\n  | {actions[0]}\n" in text


def test_a_world_that_states_no_actions_is_refused():
    task = Wordle()
    with pytest.raises(ValueError, match="choose a task that states them"):
        EnvironmentRollout().collect([(0, task[0])], context(task)[1])
