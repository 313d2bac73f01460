"""The greedy completion as the baseline, by hand."""

import torch
from torch.testing import assert_close

from mmrl.annotators.greedy_baseline import GreedyBaselineAdvantage
from mmrl.core.batch import Batch
from mmrl.core.types import Context, Sampling

CTX = Context(task=None, engine=None, policy=None, sampling=Sampling(), seed=0, iteration=0)


def test_by_hand():
    # r(y) = .8 and r(greedy) = .5: .3 for every choice; the greedy completion itself has no advantage
    batch = Batch(
        action_mask=torch.tensor([[1, 1, 0], [1, 1, 1]]).bool(),
        episode_reward=torch.tensor([0.8, 0.5]),
        greedy_reward=torch.tensor([0.5, 0.5]),
    )
    out = GreedyBaselineAdvantage()(batch, CTX)["advantages"]
    assert_close(out, torch.tensor([[0.3, 0.3, 0.0], [0.0, 0.0, 0.0]]))
