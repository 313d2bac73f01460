"""Preference strength and what it does to labels, by hand."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput, Sampling
from mmrl.methods.preferences.secrets_rlhf import StrengthLabels, preference_strength
from tests.laws.example import Example, Tabular

LAWS = [Example(StrengthLabels(members=("reference", "teacher")), per_row=True, scores=True)]


class Scorer(nn.Module):
    """Scores that are a column of the batch."""

    def __init__(self, column):
        super().__init__()
        self.column = column

    def forward(self, batch):
        scores = batch[self.column]
        nothing = torch.zeros(len(scores), 1)
        return PolicyOutput(nothing, nothing, scores)


def test_strength_by_hand():
    mean, spread = preference_strength(torch.tensor([[1.0, -0.2], [0.5, 0.3], [1.5, -0.4]]))
    assert_close(mean, torch.tensor([1.0, -0.1]))
    assert_close(spread, torch.tensor([0.408248, 0.294392]), atol=1e-6, rtol=0)


def relabel(unlabelled=0, **options):
    """Five pairs whose mean margins over two models are -2, 0.1, 1, 2, 3; the first one has a wrong label."""
    margins = torch.tensor([-2.0, 0.1, 1.0, 2.0, 3.0])
    nothing = torch.zeros(unlabelled)
    group = torch.cat([torch.arange(5).repeat(2), 5 + torch.arange(unlabelled)])
    sign = torch.cat([torch.tensor([1.0] * 5 + [-1.0] * 5), nothing])
    batch = Batch(
        group=group,
        prompt_id=group,
        preference=sign,
        one=torch.cat([margins + 0.5, torch.zeros(5), nothing]),
        two=torch.cat([torch.zeros(5), 0.5 - margins, nothing]),
    )
    models = {"one": Scorer("one"), "two": Scorer("two")}
    ctx = Context(None, None, Tabular(2, True), Sampling(), seed=0, iteration=0, models=models)
    return StrengthLabels(members=["one", "two"], **options)(batch, ctx)


def test_the_weakest_pairs_are_turned_and_the_next_ones_softened():
    batch = relabel(flip=0.2, soften=0.2)
    assert batch["preference"].tolist() == [-1, 1, 1, 1, 1, 1, -1, -1, -1, -1]
    probability = torch.tensor([1.0, 0.524979, 1.0, 1.0, 1.0]).repeat(2)  # sigmoid(0.1)
    assert_close(batch["preference_probability"], probability, atol=1e-6, rtol=0)
    assert_close(batch["preference_margin"], torch.tensor([2.0, 0.1, 1.0, 2.0, 3.0]).repeat(2))


def test_rows_without_a_label_do_not_move_the_shares():
    """With their strengths of 0 two of ten would be turned, and 0.1 were none of the weakest."""
    batch = relabel(unlabelled=5, flip=0.2, soften=0.2)
    assert batch["preference"].tolist() == [-1, 1, 1, 1, 1, 1, -1, -1, -1, -1] + [0] * 5
    probability = torch.tensor([1.0, 0.524979, 1.0, 1.0, 1.0]).repeat(2)
    assert_close(batch["preference_probability"][:10], probability, atol=1e-6, rtol=0)


def test_nothing_is_turned_without_shares():
    batch = relabel(flip=0.0, soften=0.0)
    assert batch["preference"].tolist() == [1.0] * 5 + [-1.0] * 5
    assert (batch["preference_probability"] == 1).all()
    assert batch["preference_margin"][0] == 0  # a negative strength is no margin


@pytest.mark.parametrize("options", [{"flip": 0.7, "soften": 0.4}, {"members": []}])
def test_refusals(options):
    with pytest.raises(ValueError, match=r"name at least one model, and flip \+ soften must be at most 1"):
        StrengthLabels(**options)
