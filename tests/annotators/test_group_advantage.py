"""Group advantages of batches: one entry per episode, whatever its rows."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.group_advantage import GroupAdvantage
from mmrl.core.batch import Batch
from mmrl.core.types import Context, Sampling
from tests.laws.example import Example

LAWS = [
    *(
        Example(GroupAdvantage(scale, baseline), group_relative=True)
        for scale in ("std", "sample", None)
        for baseline in ("mean", "leave_one_out")
    ),
    Example(GroupAdvantage(None, None)),
]

CTX = Context(task=None, engine=None, policy=None, sampling=Sampling(), seed=0, iteration=0, group_size=2)


def batch(reward, group, episode, mask):
    return Batch(
        episode_reward=torch.tensor(reward),
        group=torch.tensor(group),
        episode=torch.tensor(episode),
        action_mask=torch.tensor(mask).bool(),
    )


def test_two_groups():
    # task A: 1 0 0 1 -> std 1/2; task B: .2 .4 .6 .8 -> std .2236
    out = GroupAdvantage(epsilon=0)(
        batch([1, 0, 0, 1, 0.2, 0.4, 0.6, 0.8], [0] * 4 + [5] * 4, list(range(8)), [[1]] * 8), CTX
    )
    expected = torch.tensor([1, -1, -1, 1, -1.3416, -0.4472, 0.4472, 1.3416])
    assert_close(out["advantages"][:, 0], expected, atol=1e-4, rtol=0)


def test_an_episode_with_more_rows_counts_once():
    # episodes 0 (three rows) and 1 (one row) earned 1 and 0: mean 1/2, not 3/4
    rows = batch([1.0, 0.0, 1.0, 1.0], [0] * 4, [0, 1, 0, 0], [[1, 1], [1, 0], [0, 0], [1, 0]])
    out = GroupAdvantage(scale=None)(rows, CTX)["advantages"]
    assert_close(out, torch.tensor([[0.5, 0.5], [-0.5, 0.0], [0.0, 0.0], [0.5, 0.0]]))


def test_plain_reward():
    rows = batch([1.0, 3.0], [0, 0], [0, 1], [[1, 0], [1, 1]])
    out = GroupAdvantage(scale=None, baseline=None)(rows, CTX)["advantages"]
    assert_close(out, torch.tensor([[1.0, 0.0], [3.0, 3.0]]))


def test_refusals():
    with pytest.raises(ValueError, match="scale=null"):
        GroupAdvantage(baseline=None)
    with pytest.raises(ValueError, match="epsilon"):
        GroupAdvantage(epsilon=-1)
    with pytest.raises(ValueError, match=r"episodes \[1\] is not finite"):
        GroupAdvantage()(batch([1.0, float("nan")], [0, 0], [0, 1], [[1], [1]]), CTX)
    alone = Context(task=None, engine=None, policy=None, sampling=Sampling(), seed=0, iteration=0, group_size=1)
    with pytest.raises(ValueError, match="at least 2 episodes"):
        GroupAdvantage()(batch([1.0, 0.0], [0, 1], [0, 1], [[1], [1]]), alone)
    with pytest.raises(KeyError, match="the batch has no column"):
        GroupAdvantage()(Batch(action_mask=torch.ones(1, 1).bool()), CTX)


def test_a_column_of_scales_needs_the_scale_of_the_batch():
    with pytest.raises(ValueError, match="scale_by='baseline_group' needs scale=batch, got scale='std'"):
        GroupAdvantage(scale_by="baseline_group")
    assert "baseline_group" in GroupAdvantage("batch", scale_by="baseline_group").reads()
