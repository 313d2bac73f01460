"""How choices share the loss."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.objectives.weighting import ConstantLength, EpisodeMean, SequenceMean, TokenMean
from tests.laws.example import Example

LAWS = [Example(ConstantLength(5), sums_to_one=False)]

WINDOW = Batch(
    action_mask=torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0], [0, 1, 1]]).bool(),
    episode=torch.tensor([4, 9, 9, 4]),
)
# choices: 6 in all; rows of 3, 1, 0, 2; episode 4 has 5 and episode 9 has 1
EXPECTED = [
    (TokenMean(), [[1 / 6] * 3, [1 / 6, 0, 0], [0] * 3, [0, 1 / 6, 1 / 6]]),
    (SequenceMean(), [[1 / 9] * 3, [1 / 3, 0, 0], [0] * 3, [0, 1 / 6, 1 / 6]]),
    (EpisodeMean(), [[1 / 10] * 3, [1 / 2, 0, 0], [0] * 3, [0, 1 / 10, 1 / 10]]),
    (ConstantLength(4), [[1 / 12] * 3, [1 / 12, 0, 0], [0] * 3, [0, 1 / 12, 1 / 12]]),
]


@pytest.mark.parametrize("weighting, expected", EXPECTED, ids=lambda x: type(x).__name__)
def test_one_process(weighting, expected):
    assert_close(weighting(WINDOW, lambda number: number), torch.tensor(expected))


@pytest.mark.parametrize("weighting, expected", EXPECTED, ids=lambda x: type(x).__name__)
def test_two_processes_give_what_one_gives(weighting, expected):
    """Whole episodes on each process; `total` adds up what both of them ask for."""
    shares = [WINDOW.select(torch.tensor(index)) for index in ([0, 3], [1, 2])]
    asked = []
    for share in shares:
        weighting(share, lambda number: asked.append(number) or number)
    assert len(asked) == 2  # one collective each
    together = [weighting(share, lambda number: sum(asked)) for share in shares]
    assert_close(torch.cat(together), torch.tensor(expected)[[0, 3, 1, 2]])


@pytest.mark.parametrize("weighting, expected", EXPECTED, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("rows", [4, 0])
def test_nothing_chosen_weighs_nothing(weighting, expected, rows):
    minibatch = Batch(action_mask=torch.zeros(rows, 3).bool(), episode=torch.zeros(rows).long())
    assert_close(weighting(minibatch, lambda number: number), torch.zeros(rows, 3))


def test_refusal():
    with pytest.raises(ValueError, match=r"constant_length\.length"):
        ConstantLength(0)
