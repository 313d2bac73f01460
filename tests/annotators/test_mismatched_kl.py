"""KTO's reference point by hand."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from mmrl.annotators.mismatched_kl import MismatchedKL, swap_prompts
from mmrl.core.types import PolicyOutput
from tests.annotators.test_logprobs import context, rows
from tests.laws.example import Example

LAWS = [Example(MismatchedKL(rows=3), scores=True)]


class Scaled(nn.Module):
    """A log-prob is minus a weight times the prompt's number times the choice."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))

    def forward(self, batch):
        logprobs = -self.weight * batch["obs.number"][:, None] * batch["action"]
        return PolicyOutput(logprobs, logprobs)


def batch():
    return rows(3).with_columns(
        **{"obs.number": torch.tensor([1.0, 1.0, 3.0])},
        group=torch.tensor([5, 5, 2]),
        episode=torch.tensor([0, 1, 2]),
        prompt_id=torch.tensor([0, 0, 1]),
        action_mask=torch.tensor([[1, 1], [1, 0], [1, 1]]).bool(),
    )


def test_choices_stay_and_prompts_move_to_the_next_group():
    moved = swap_prompts(batch())
    assert moved["obs.number"].tolist() == [3, 3, 1] and moved["prompt_id"].tolist() == [1, 1, 0]
    assert torch.equal(moved["action"], batch()["action"])


def test_reference_point():
    # choices 0 1, 2 (3 is masked), 4 5: log-ratios (2 - 1) * number * sum = 3, 6 and 9, whose mean is 6
    out = MismatchedKL()(batch(), context(Scaled(1.0), reference=Scaled(2.0)))
    assert_close(out["reference_point"], torch.full((3,), 6.0))
    # a negative estimate counts as 0
    assert (MismatchedKL()(batch(), context(Scaled(2.0), reference=Scaled(1.0)))["reference_point"] == 0).all()


def test_one_prompt_is_refused():
    one = batch().with_columns(group=torch.zeros(3).long())
    with pytest.raises(ValueError, match=r"data\.num_prompts"):
        MismatchedKL()(one, context(Scaled(1.0), reference=Scaled(2.0)))
