"""Transforms with a state: what checkpoints hold, also on several processes, and what leaves the state alone."""

from dataclasses import dataclass, field

import pytest
import torch

from mmrl.core.groups import group_episodes
from mmrl.core.types import Collector, Context, Episode, Prompt, Sampling
from mmrl.data import collate
from mmrl.data.states import collect_states, copy_stateful, is_equal, load_states
from mmrl.distributed import parallel
from mmrl.transforms.base import StatefulTransform
from mmrl.transforms.filter import DropZeroVariance


@dataclass(frozen=True)
class LeaveOutThird(StatefulTransform):
    """Leaves out every third group of the run, counted over all processes."""

    seen: dict = field(default_factory=lambda: {"iterations": 0, "groups": torch.tensor(0)}, init=False)

    def __call__(self, episodes, ctx):
        groups = group_episodes(episodes)
        everyone = sorted(ctx.collector.gather(list(groups)))
        first = int(self.seen["groups"])
        out = {group for number, group in enumerate(everyone, first) if number % 3 == 2}
        self.seen["iterations"] += 1
        self.seen["groups"] = self.seen["groups"] + len(everyone)
        return [episode for group, members in groups.items() if group not in out for episode in members]

    def state_dict(self):
        return dict(self.seen)

    def load_state_dict(self, state):
        self.seen.update(state)


def episode(group):
    return Episode(Prompt(f"toy/train/{group}"), group, 0)


CTX = Context(None, None, None, Sampling(), seed=0, iteration=0)


def test_the_state_is_saved_and_restored():
    part, again = LeaveOutThird(), LeaveOutThird()
    part([episode(0), episode(1)], CTX)
    states = collect_states({"drop": DropZeroVariance(), "third": part})
    assert list(states) == ["third"] and is_equal(states["third"], {"iterations": 1, "groups": torch.tensor(2)})
    load_states({"third": again}, states)
    assert [e.group for e in again([episode(2), episode(3)], CTX)] == [3]
    load_states({"third": LeaveOutThird()}, {})  # a checkpoint from before the transform was added


def test_processes_with_different_states_are_refused(monkeypatch):
    other = {"third": {"iterations": 0, "groups": torch.tensor(2)}}
    monkeypatch.setattr(parallel, "gather", lambda items: [*items, other])
    with pytest.raises(ValueError, match=r"data.transforms.third \(LeaveOutThird\): its state in process 1 is not"):
        collect_states({"third": LeaveOutThird()})


class NoOtherRank(Collector):
    def gather(self, items):
        raise AssertionError("other ranks do not take part")


def test_a_row_that_is_not_trained_on_changes_no_state(monkeypatch):
    """Where no episode is left, the transforms that write columns see one more, on this rank alone."""

    class Writing(LeaveOutThird):
        def writes(self):
            return frozenset({"is_first"})

    part, first = Writing(), episode(0)
    first.turns = [None]
    given = []

    def stop(left, policy):
        given.extend(left)
        raise InterruptedError

    monkeypatch.setattr(collate, "collate", stop)
    ctx = Context(None, None, None, Sampling(), seed=0, iteration=0, collector=NoOtherRank())
    with pytest.raises(InterruptedError):
        collate.learnable([], [first], ctx, copy_stateful({"third": part}))
    assert given == [first] and part.seen["iterations"] == 0
