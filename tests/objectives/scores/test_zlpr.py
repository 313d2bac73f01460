"""ZLPR: its loss on numbers by hand, the threshold that training leads to, and labels that are not known."""

import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.objectives.scores.zlpr import ZLPRLoss, zlpr_loss
from tests.laws.example import Example
from tests.objectives.scores.test_scores import output

LAWS = [Example(ZLPRLoss(), per_row=True)]


@pytest.mark.parametrize(
    ("scores", "labels", "loss"),
    [
        # log(1 + e^-1 + e^0.5) + log(1 + e^-2) = log 3.016601 + log 1.135335 = 1.104131 + 0.126928
        ([2.0, -1.0, 0.5], [1, 0, 0], 1.231059),
        ([-3.0, -3.0, -3.0], [0, 0, 0], 0.139206),  # log(1 + 3 e^-3) = log 1.149361
        ([0.0, 0.0], [1, 0], 1.386294),  # 2 log 2
        ([2.0, 7.0, 0.5], [1, math.nan, 0], 1.101005),  # log(1 + e^0.5) + log(1 + e^-2) = 0.974077 + 0.126928
    ],
)
def test_the_loss_by_hand(scores, labels, loss):
    result = zlpr_loss(torch.tensor([scores]), torch.tensor([labels], dtype=torch.float))
    assert_close(result, torch.tensor([loss]), atol=1e-6, rtol=0)
    term = ZLPRLoss()(output([scores]), Batch(labels=torch.tensor([labels], dtype=torch.float)))
    assert_close(term, result)


def test_scores_of_labels_end_above_the_threshold():
    """Also from a start at which all of them are wrong."""
    labels = torch.tensor([[1.0, 0, 0], [0, 1, 1], [0, 0, 0]])
    scores = (3 - 6 * labels).requires_grad_()
    optimizer = torch.optim.Adam([scores], lr=0.3)
    for _ in range(60):
        optimizer.zero_grad()
        zlpr_loss(scores, labels).sum().backward()
        optimizer.step()
    assert torch.equal((scores > 0).float(), labels)


def test_unknown_labels_have_no_gradient_and_do_not_count():
    scores = torch.tensor([[2.0, 7.0]], requires_grad=True)
    labels = torch.tensor([[0.0, math.nan]])
    zlpr_loss(scores, labels).sum().backward()
    assert scores.grad[0, 1] == 0 and scores.grad[0, 0] > 0
    accuracy = ZLPRLoss().metrics(output(scores.detach()), Batch(labels=labels))["accuracy"]
    assert accuracy.tolist() == [0.0]


def test_other_numbers_of_labels_are_refused():
    with pytest.raises(ValueError, match=r"rows have 3 labels and the policy has 2 heads; set policy\.heads=3"):
        ZLPRLoss()(output([[1.0, 2.0]]), Batch(labels=torch.zeros(1, 3)))
