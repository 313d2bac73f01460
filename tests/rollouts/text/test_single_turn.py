"""One question, one answer: groups, seeds, ends."""

import pytest

from mmrl.core.types import Completion, Context, Prompt, Sampling
from mmrl.rollouts.text.single_turn import SingleTurn
from tests.tiny_recipes import Counting


class Asked:
    """An engine that keeps what it was asked."""

    def sample(self, requests, sampling):
        import torch

        self.requests = requests
        ends = ["done", "length"]
        return [
            Completion({}, torch.tensor([i]), torch.zeros(1), torch.ones(1).bool(), str(i), ended=ends[i % 2])
            for i, _ in enumerate(requests)
        ]


def played(slots, **fields):
    engine, task = Asked(), Counting()
    ctx = Context(task, engine, None, Sampling(), **{"seed": 0, "iteration": 0, "group_size": 3, **fields})
    return engine, SingleTurn().collect([(slot, task[slot]) for slot in slots], ctx)


def test_a_group_is_the_completions_of_one_prompt():
    engine, episodes = played([4, 7])
    assert [(e.group, e.sample_index, e.prompt.index) for e in episodes] == [
        (s, a, s) for s in (4, 7) for a in range(3)
    ]
    assert [e.output for e in episodes] == list("012345")
    assert [e.ended for e in episodes] == ["done", "length"] * 3
    assert all(len(e.turns) == 1 for e in episodes)
    assert [r.prompt_id for r in engine.requests] == [(4, 0)] * 3 + [(7, 0)] * 3  # an engine encodes each prompt once


def test_seeds_are_a_function_of_run_purpose_iteration_slot_and_completion():
    def seeds(slots, **fields):
        return [r.seed for r in played(slots, **fields)[0].requests]

    base = seeds([4, 7])
    assert len(set(base)) == 6
    assert seeds([7])[:3] == base[3:]  # whoever else is played, and in whatever order
    for change in ({"seed": 1}, {"iteration": 1}, {"purpose": "eval"}):
        assert not set(seeds([4, 7], **change)) & set(base)


def test_a_prompt_without_messages_is_refused():
    ctx = Context(Counting(), Asked(), None, Sampling(), seed=0, iteration=0)
    with pytest.raises(ValueError, match=r"'toy/train/0' has no messages.*rollout=env"):
        SingleTurn().collect([(0, Prompt("toy/train/0"))], ctx)
