import pytest
import torch
from torch.testing import assert_close

from mmrl.ops.importance import mask_ratio, truncate_ratio

RATIO = torch.tensor([[0.25, 0.5, 1.0], [2.0, 4.0, torch.nan]])
MASK = torch.tensor([[True, True, True], [True, True, False]])


def test_truncated_is_the_smaller_one():
    assert_close(truncate_ratio(RATIO, MASK, 2.0), torch.tensor([[0.25, 0.5, 1.0], [2.0, 2.0, 0.0]]), rtol=0, atol=0)


def test_within_keeps_the_bounds_and_drops_what_is_beyond():
    assert_close(mask_ratio(RATIO, MASK, 0.5, 2.0), torch.tensor([[0.0, 0.5, 1.0], [2.0, 0.0, 0.0]]), rtol=0, atol=0)


@pytest.mark.parametrize("bounded", [lambda r, m: truncate_ratio(r, m, 1e9), lambda r, m: mask_ratio(r, m, 0.0, 1e9)])
def test_open_bounds_change_nothing(bounded):
    assert_close(bounded(RATIO, MASK)[MASK], RATIO[MASK], rtol=0, atol=0)
