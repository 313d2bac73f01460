"""Advantages of the reward mixed with those of another score."""

import torch
from torch.testing import assert_close

from mmrl.annotators.mixed_advantage import MixedAdvantage
from mmrl.batch import Batch
from mmrl.types import Context, Sampling

OWN = torch.tensor([0.57735, -1.154701, 0.57735])


def mixed(score, annotator, iteration=0):
    ctx = Context(None, None, None, Sampling(), seed=0, iteration=iteration)
    batch = Batch(
        advantages=OWN[:, None].expand(3, 2),
        action_mask=torch.tensor([[True, False]] * 3),
        group=torch.zeros(3).long(),
        episode=torch.arange(3),
        self_reward=torch.tensor(score),
    )
    return annotator(batch, ctx)["advantages"]


def test_hand_computed():
    # s = (1, .05, .5): mean .516667, sample std .475219, B = (1.017074, -.982003, -.035072); .9 A + .1 B
    result = mixed([1.0, 0.05, 0.5], MixedAdvantage("self_reward", weight=0.1))
    assert_close(result[:, 0], torch.tensor([0.621323, -1.137431, 0.516108]), rtol=0, atol=2e-6)
    assert (result[:, 1] == 0).all()
    assert_close(mixed([1.7, 0.05, 0.5], MixedAdvantage("self_reward")), result)  # held in [0, 1]


def test_a_group_that_is_trusted_alike_keeps_its_own():
    # (.5, .6, .7) has the sample std .1, which is not more than .1
    assert_close(mixed([0.5, 0.6, 0.7], MixedAdvantage("self_reward", min_std=0.11))[:, 0], OWN)
    assert_close(mixed([1.0, 0.05, 0.5], MixedAdvantage("self_reward", start_iteration=3), iteration=2)[:, 0], OWN)
