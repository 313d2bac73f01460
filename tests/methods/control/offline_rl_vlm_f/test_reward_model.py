"""Bradley-Terry on frames by hand, and ensembles that learn an order."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.methods.control.offline_rl_vlm_f.reward_model import RewardEnsemble, fit_rewards, frame_preference_loss


def test_the_loss_by_hand():
    """-log sigmoid(1 - 0.2) = log(1 + exp(-0.8)) = 0.371101; equal rewards log 2; the wrong label costs 0.8 more."""
    first, second = torch.tensor([1.0, 0.3, 1.0]), torch.tensor([0.2, 0.3, 0.2])
    loss = frame_preference_loss(first, second, torch.tensor([0, 1, 1]))
    assert_close(loss, torch.tensor([0.371101, math.log(2), 1.171101]), atol=1e-5, rtol=0)


def test_the_gradient_is_the_probability_of_the_other_label():
    """d/dr(first) of -log sigmoid(d) is -(1 - sigmoid(d)); for label 1 it is sigmoid(d)."""
    first = torch.tensor([0.5, 0.5], requires_grad=True)
    frame_preference_loss(first, torch.zeros(2), torch.tensor([0, 1])).sum().backward()
    chance = 1 / (1 + math.exp(-0.5))
    assert_close(first.grad, torch.tensor([chance - 1, chance]))


@pytest.mark.parametrize("shape", [(17, 17, 3), (4,)])
def test_an_ensemble_learns_an_order_from_labels_with_errors(shape):
    """Frames of one level each; of 200 labels a tenth is wrong. All rewards of the levels are in order afterwards."""
    rng = np.random.default_rng(1)
    levels = rng.integers(0, 8, (200, 2))
    levels[:, 1] = np.where(levels[:, 0] == levels[:, 1], (levels[:, 1] + 1) % 8, levels[:, 1])
    make = (lambda x: (x * 30).astype(np.uint8)) if len(shape) == 3 else (lambda x: (x / 4 - 1).astype(np.float32))
    frames = [np.broadcast_to(make(side)[(...,) + (None,) * len(shape)], (len(side), *shape)) for side in levels.T]
    labels = (levels[:, 1] > levels[:, 0]).astype(np.int64) ^ (rng.random(200) < 0.1)
    ensemble = RewardEnsemble(2, shape, 16, seed=0)
    fit_rewards(ensemble, *frames, labels, passes=12, batch_size=32, lr=3e-3, shift=1, seed=0)
    every = np.broadcast_to(make(np.arange(8))[(...,) + (None,) * len(shape)], (8, *shape)).copy()
    scores = ensemble.score(every)
    assert (np.diff(scores) > 0).all() and np.abs(scores).max() <= 1


def test_the_reward_is_the_mean_of_independent_networks():
    ensemble = RewardEnsemble(3, (4,), 8, seed=5)
    frames = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    apart = [member(frames) for member in ensemble.members]
    assert_close(ensemble(frames), (apart[0] + apart[1] + apart[2]) / 3)
    assert not torch.equal(apart[0], apart[1])
    again, other = RewardEnsemble(3, (4,), 8, seed=5), RewardEnsemble(3, (4,), 8, seed=6)
    np.testing.assert_array_equal(again.score(frames.numpy()), ensemble.score(frames.numpy()))
    assert not np.array_equal(other.score(frames.numpy()), ensemble.score(frames.numpy()))
