"""OPO's baseline by hand, and against the variance of the gradient over all completions of a small policy."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Context, Sampling
from mmrl.methods.advantages.opo import OptimalBaseline


def advantages(lengths, rewards, groups, episodes=None):
    """Advantages [N, T] of rows with these lengths."""
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    batch = Batch(
        action_mask=mask, episode_reward=torch.tensor(rewards), group=torch.tensor(groups),
        episode=torch.tensor(episodes or list(range(len(lengths)))),
    )  # fmt: skip
    return OptimalBaseline()(batch, Context(None, None, None, Sampling(), seed=0, iteration=0))["advantages"]


def test_by_hand():
    # group 3: (1 * 1 + 3 * 0) / 4 = 1/4, where the plain mean is 1/2; group 5: equal rewards have exactly no advantage
    out = advantages([1, 3, 2, 1], [1.0, 0.0, 0.7, 0.7], [3, 3, 5, 5])
    expected = [[0.75, 0.0, 0.0], [-0.25, -0.25, -0.25], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert out.tolist() == expected


def test_the_rows_of_an_episode_are_one_completion():
    # episode 0 has 1 + 2 choices, episode 1 has one: (3 * 1 + 1 * 0) / 4
    out = advantages([1, 2, 1], [1.0, 1.0, 0.0], [0, 0, 0], [0, 0, 1])
    assert_close(out, torch.tensor([[0.25, 0.0], [0.25, 0.25], [-0.75, 0.0]]))


@pytest.mark.parametrize("seed", range(3))
def test_no_other_baseline_has_a_gradient_of_less_variance(seed):
    """Fair coins with a logit each, so that the squared gradient of every completion is its length / 4; all completions
    of lengths 1 and 3 with their probabilities: 8 of 16 draws have each length."""
    completions = [*(list(itertools.product([0.0, 1.0], repeat=1)) * 4), *itertools.product([0.0, 1.0], repeat=3)]
    lengths = [len(completion) for completion in completions]
    rewards = torch.rand(16, generator=torch.Generator().manual_seed(seed)) + torch.tensor(lengths) / 2
    gradients = torch.zeros(16, 3)  # of the log-probability: choice - 1/2
    for row, completion in zip(gradients, completions):
        row[: len(completion)] = torch.tensor(completion) - 0.5

    def variance(baseline):
        weighted = gradients * (rewards - baseline)[:, None]
        return ((weighted - weighted.mean(0)) ** 2).sum(1).mean()

    baseline = rewards[0] - advantages(lengths, rewards.tolist(), [0] * 16)[0, 0]
    means = [(gradients * (rewards - each)[:, None]).mean(0) for each in (baseline, rewards.mean())]
    assert_close(*means)  # no baseline changes the mean
    grid = torch.linspace(float(rewards.min()), float(rewards.max()), 200)
    assert variance(baseline) <= min(variance(each) for each in grid) + 1e-6
    assert variance(baseline) < variance(rewards.mean()) - 1e-3
