"""A row is compared with the rows of its baseline group, across processes."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.role_advantage import RoleAdvantage
from mmrl.core.batch import Batch
from mmrl.core.types import Collector, Context, Sampling
from tests.laws.example import Example

LAWS = [
    Example(RoleAdvantage()),
    Example(RoleAdvantage(("group", "is_first"), scale=False)),
]


class Ranks(Collector):
    """A process that knows what all of them hold, as gathered."""

    def __init__(self, items):
        self.items = items

    def gather(self, items):
        return self.items


def context(collector=None):
    return Context(None, None, None, Sampling(), seed=0, iteration=0, collector=collector or Collector())


def batch(reward, baseline_group, mask=None):
    n = len(reward)
    there = torch.ones(n, 2, dtype=torch.bool) if mask is None else mask
    return Batch(
        reward=torch.tensor(reward),
        baseline_group=torch.tensor(baseline_group),
        step=torch.arange(n) % 2,
        action_mask=there,
    )


def test_two_processes_compare_as_one():
    reward, baseline_group = [1.0, -0.5, -1.0, 1.0, 0.3], [0, 0, 0, 0, 1]
    whole = RoleAdvantage()(batch(reward, baseline_group), context())["advantages"]
    assert_close(whole[:, 0], torch.tensor([0.848875, -0.606339, -1.09141, 0.848875, 0.0]), atol=2e-6, rtol=0)
    items = [((c,), r) for r, c in zip(torch.tensor(reward).tolist(), baseline_group)]
    for share in (slice(0, 2), slice(2, 5)):
        part = RoleAdvantage()(batch(reward[share], baseline_group[share]), context(Ranks(items)))["advantages"]
        assert torch.equal(part, whole[share])


def test_rows_without_a_choice_are_compared_with_nobody():
    mask = torch.tensor([[True, True], [True, False], [False, False]])
    out = RoleAdvantage(("step",), scale=False)(batch([1.0, 4.0, 9.0], [0, 0, 0], mask), context())["advantages"]
    assert (out == 0).all()  # rows 0 and 2 share a step, and 2 chose nothing


def test_bad_settings_and_rewards_are_refused():
    with pytest.raises(ValueError, match="by is empty"):
        RoleAdvantage(())
    with pytest.raises(ValueError, match="reward is not finite"):
        RoleAdvantage()(batch([torch.nan, 1.0], [0, 0]), context())
