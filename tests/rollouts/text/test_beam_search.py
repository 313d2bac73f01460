"""Groups of constrained beam search: ranks, valid distinct items, and what cannot be searched."""

from dataclasses import replace

import pytest
import torch

from mmrl.core.types import Context, Sampling
from mmrl.engines.beam_search import BeamSearchEngine
from mmrl.engines.local import LocalEngine
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.text.beam_search import BeamSearch
from tasks.ranking import NextItem
from tests.policies.text.oracle import TINY
from tests.tiny_recipes import Counting

TASK = NextItem(categories=2, per_category=4, successors=2)


@pytest.fixture(scope="module")
def ctx():
    torch.manual_seed(0)
    policy, engine = TextPolicy(config=dict(TINY)), BeamSearchEngine()
    engine.sync(policy, 0)
    return Context(TASK, engine, policy, Sampling(max_tokens=3), seed=0, iteration=0, group_size=5)


def collect(ctx, slots=(4, 7)):
    return BeamSearch().collect([(slot, TASK[slot]) for slot in slots], ctx)


def test_a_group_is_distinct_valid_items_by_rank(ctx):
    episodes = collect(ctx)
    assert [(e.group, e.sample_index) for e in episodes] == [(slot, rank) for slot in (4, 7) for rank in range(5)]
    for group in (episodes[:5], episodes[5:]):
        assert len({e.output for e in group}) == 5 and {e.output for e in group} <= set(TASK.items())
        scores = [float(e.turns[0].completion.behavior_logprobs.sum()) for e in group]
        assert scores == sorted(scores, reverse=True)
    assert all(TASK.score(e)["format"] == 1 and e.ended == "done" for e in episodes)
    assert [e.output for e in collect(replace(ctx, seed=1))] == [e.output for e in episodes]  # nothing is drawn


def test_further_indices_of_a_group_are_its_next_ranks(ctx):
    first = collect(ctx, (4,))
    later = collect(replace(ctx, requested_indices={4: range(3, 5)}), (4,))
    assert [(e.sample_index, e.output) for e in later] == [(e.sample_index, e.output) for e in first[3:]]
    assert collect(ctx, ()) == []


def test_the_tree_follows_the_outputs_of_the_task(ctx):
    rollout = BeamSearch()
    tree = rollout.build_tree(ctx)
    assert len(tree) == 8 and rollout.build_tree(replace(ctx, task=TASK.on("held_out"))) is tree
    assert len(rollout.build_tree(replace(ctx, task=NextItem()))) == 50


def test_what_cannot_be_searched_is_refused(ctx):
    with pytest.raises(ValueError, match="engine=beam_search"):
        collect(replace(ctx, engine=LocalEngine()))
    with pytest.raises(ValueError, match="task=next_item"):
        collect(replace(ctx, task=Counting()))
    with pytest.raises(ValueError, match=r"9 beams .* 8 outputs"):
        collect(replace(ctx, group_size=9))
