"""Advantages with the mean of the group and the standard deviation of the batch, by hand."""

import torch
from torch.testing import assert_close

from mmrl.annotators.group_advantage import GroupAdvantage
from mmrl.core.batch import NO_GROUP, Batch
from mmrl.core.types import Collector, Context, Sampling
from mmrl.objectives.weighting import SequenceMean, TokenMean
from tests.laws.example import Example

LAWS = [Example(GroupAdvantage("batch"))]

CTX = Context(None, None, None, Sampling(), seed=0, iteration=0, group_size=4)


def annotate(reward, ctx=CTX, group=None, episode=None):
    rows = len(reward)
    batch = Batch(
        action_mask=torch.ones(rows, 1).bool(),
        episode_reward=torch.tensor(reward),
        group=torch.arange(rows) // 4 if group is None else torch.tensor(group),
        episode=torch.arange(rows) if episode is None else torch.tensor(episode),
    )
    return GroupAdvantage("batch", epsilon=0)(batch, ctx)["advantages"][:, 0]


def test_by_hand():
    # five of eight are right: std = sqrt(5/8 * 3/8) = .484123; (1 - 1/4) / std = 1.549193, -1/4 / std = -.516398
    out = annotate([1.0, 0, 0, 0, 1, 1, 1, 1])
    assert_close(out, torch.tensor([1.549193, -0.516398, -0.516398, -0.516398, 0, 0, 0, 0]), atol=1e-6, rtol=0)
    # the group's own std is .433013: 1.732051 and -.577350
    batch = Batch(
        action_mask=torch.ones(4, 1).bool(),
        episode_reward=torch.tensor([1.0, 0, 0, 0]),
        group=torch.zeros(4, dtype=torch.long),
        episode=torch.arange(4),
    )
    own = GroupAdvantage(epsilon=0)(batch, CTX)["advantages"][:, 0]
    assert_close(own, torch.tensor([1.732051, -0.577350, -0.577350, -0.577350]), atol=1e-6, rtol=0)
    assert_close(annotate([1.0, 0, 0, 0]), own)  # one group is the batch


def test_equal_rewards_have_no_advantage():
    assert (annotate([0.7] * 8) == 0).all()
    assert (annotate([1.0] * 4 + [0.0] * 4) == 0).all()  # within each group; the std of the batch is 1/2


def test_an_episode_of_several_rows_counts_once():
    out = annotate([1.0, 0, 0, 0, 1, 1], group=[0] * 6, episode=[0, 1, 2, 3, 0, 0])
    assert_close(out[:4], annotate([1.0, 0, 0, 0]))
    assert (out[4:] == out[0]).all()


def test_the_batch_is_that_of_all_processes():
    class Two(Collector):
        def gather(self, items):
            return [*items, *((0, 1.0) for _ in range(4))]

    ctx = Context(None, None, None, Sampling(), seed=0, iteration=0, group_size=4, world_size=2, collector=Two())
    assert_close(annotate([1.0, 0, 0, 0], ctx), annotate([1.0, 0, 0, 0, 1, 1, 1, 1])[:4])


def test_the_row_of_a_process_without_episodes_does_not_count():
    out = annotate([1.0, 0, 0, 0, 1.0], group=[0, 0, 0, 0, NO_GROUP])
    assert_close(out[:4], annotate([1.0, 0, 0, 0]))


def test_tokens_count_alike():
    # two sequences of 2 and 8 tokens with losses 1 and 3: (2 * 1 + 8 * 3) / 10 = 2.6, and by sequences (1 + 3) / 2 = 2
    mask = torch.arange(8) < torch.tensor([2, 8])[:, None]
    loss = torch.tensor([1.0, 3.0])[:, None].expand(2, 8)
    for weighting, mean in ((TokenMean(), 2.6), (SequenceMean(), 2.0)):
        weights = weighting(Batch(action_mask=mask), lambda number: number)
        assert_close((weights * loss).sum(), torch.tensor(mean))
