"""Contrastive policy gradient: pairs by hand, its optimum, and IPO as its special case."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.methods.offline.copg import CoPGLoss, squared_differences
from mmrl.objectives.preference import DPOLoss
from tests.laws.example import Example

LAWS = [Example(CoPGLoss(0.5))]


def loss(ratio, reward, beta, preference=None, term=None):
    """Loss of rows of one choice that are one group, from their log-ratios to the reference."""
    rows = len(reward)
    batch = Batch(
        action_mask=torch.ones(rows, 1).bool(),
        group=torch.zeros(rows, dtype=torch.long),
        episode_reward=torch.as_tensor(reward),
        ref_logprobs=torch.full((rows, 1), -2.0),
        preference=torch.zeros(rows) if preference is None else preference,
    )
    logprobs = ratio[:, None] - 2.0
    return (term or CoPGLoss(beta))(PolicyOutput(logprobs, logprobs.detach()), batch)


def test_by_hand():
    # R = (1, 0), log-ratios (.4, -.6), beta .5: g = (.8, .3), (.5)^2 = .25, over 4 beta = 2: both rows carry .125
    assert_close(loss(torch.tensor([0.4, -0.6]), [1.0, 0.0], 0.5), torch.tensor([0.125, 0.125]))
    # 1 / beta = 2 apart: the optimum
    assert_close(loss(torch.tensor([1.0, -1.0]), [1.0, 0.0], 0.5), torch.zeros(2))
    assert_close(loss(torch.tensor([0.3, 0.3]), [0.7, 0.7], 0.5), torch.zeros(2))


def test_all_pairs_of_a_group():
    value = torch.randn(9, generator=torch.Generator().manual_seed(0))
    group, counted = torch.tensor([0, 0, 0, 0, 5, 5, 7, 7, 7]), torch.ones(9).bool()
    counted[8] = False
    expected = torch.zeros(9)
    for i, j in itertools.permutations(range(9), 2):
        if group[i] == group[j] and counted[i] and counted[j]:
            others = int(((group == group[i]) & counted).sum()) - 1
            expected[i] += (value[i] - value[j]) ** 2 / others
    assert_close(squared_differences(value, group, counted), expected)
    assert squared_differences(value[:1], group[:1], counted[:1]) == 0  # no pair


def test_what_was_not_chosen_does_not_count():
    """The pair of `test_by_hand` with choices outside the mask, a row without a choice, and a row that is alone."""
    logprobs = torch.tensor([[0.3, 0.1], [-0.6, 9.0], [5.0, 5.0], [0.7, 0.0]], requires_grad=True)
    batch = Batch(
        action_mask=torch.tensor([[1, 1], [1, 0], [0, 0], [1, 1]]).bool(),
        group=torch.tensor([0, 0, 0, 1]),
        episode_reward=torch.tensor([1.0, 0.0, 8.0, 3.0]),
        ref_logprobs=torch.zeros(4, 2),
    )
    out = CoPGLoss(0.5)(PolicyOutput(logprobs, logprobs.detach()), batch)
    assert_close(out, torch.tensor([0.125, 0.125, 0.0, 0.0]))
    out[[0, 3]].sum().backward()  # of the first row, .5^2 / 2, and of the one that is alone: -+ beta .5 = -+.25
    assert_close(logprobs.grad, torch.tensor([[-0.25, -0.25], [0.25, 0.0], [0.0, 0.0], [0.0, 0.0]]))


def test_its_gradient_is_a_policy_gradient_with_the_others_as_baseline():
    """d mean loss / d log pi_i = -(g_i - mean_{j != i} g_j) / n."""
    reward, beta = torch.tensor([1.0, 0.0, 0.5, 2.0]), 0.5
    ratio = torch.tensor([0.4, -0.6, 0.1, 0.0], requires_grad=True)
    loss(ratio, reward, beta).mean().backward()
    g = reward - beta * ratio.detach()
    assert_close(ratio.grad, -(g - (g.sum() - g) / 3) / 4)


def test_ipo_is_the_case_of_a_constant_difference_of_rewards():
    """R = 1/2 and 0: (1/2 - beta m)^2 = beta^2 (m - 1 / (2 beta))^2. At m = 1 and beta = 1/2 both are 0."""
    for ratio in (torch.tensor([0.5, -0.5]), torch.tensor([0.2, 0.7])):
        ours = loss(ratio, [0.5, 0.0], 0.5) * 4 * 0.5
        ipo = loss(ratio, [0.5, 0.0], 0.5, torch.tensor([1.0, -1.0]), DPOLoss("ipo", 0.5))
        assert_close(ours, 0.25 * ipo)
    assert_close(loss(torch.tensor([0.5, -0.5]), [0.5, 0.0], 0.5), torch.zeros(2))
    with pytest.raises(ValueError, match="beta must be > 0"):
        CoPGLoss(0.0)
