"""Change of weight matrices by hand, and principal angles against scipy."""

from math import isnan

import pytest
import torch
from scipy.linalg import subspace_angles

from mmrl.evaluation.statistics.weight_change import (
    measure_change,
    overlap_of_changes,
    principal_angle,
    principal_entries,
)

BEFORE = torch.diag(torch.tensor([3.0, 2.0, 1.0, 0.5]))


def changed(row, column, size=0.1):
    after = BEFORE.clone()
    after[row, column] += size
    return after


def test_no_change_is_all_zero():
    change = measure_change(BEFORE, BEFORE.clone(), rank=2)
    assert (change.unchanged, change.shift) == (1, 0) and isnan(change.overlap)
    assert change.left == pytest.approx(0, abs=1e-9) and change.right == pytest.approx(0, abs=1e-9)


def test_changes_by_hand():
    # singular values of [[1, 0], [.1, .5]] in the last two rows: the top two directions stay
    tail = measure_change(BEFORE, changed(3, 2), rank=2)
    assert tail.shift == pytest.approx(0.001957, abs=1e-6) and tail.unchanged == 0.9375
    assert tail.left == pytest.approx(0, abs=1e-6)
    # an entry below the first turns the first left direction
    top = measure_change(BEFORE, changed(1, 0), rank=1)
    assert top.shift == pytest.approx(0.000953, abs=1e-6) and top.left == pytest.approx(3.428178, abs=1e-5)


def test_changes_that_bfloat16_does_not_show_are_none():
    assert measure_change(BEFORE, BEFORE * (1 + 0.9e-3)).unchanged == 1
    assert measure_change(BEFORE, BEFORE * (1 + 1.2e-3)).unchanged == 0.75  # zeros stay


def test_angles_are_those_of_scipy():
    torch.manual_seed(0)
    for size in (1, 3, 5):
        first, second = (torch.linalg.qr(torch.randn(7, size, dtype=torch.float64))[0] for _ in range(2))
        near = torch.linalg.qr(first + 1e-7 * second)[0]
        for other in (second, near):
            expected = subspace_angles(first.numpy(), other.numpy()).max() * 180 / torch.pi
            assert principal_angle(first, other) == pytest.approx(expected, rel=1e-5)


def test_principal_entries_are_the_largest_of_the_low_rank_part():
    matrix = torch.tensor([[5.0, 0.0, 0.0], [0.0, 0.0, 4.0], [0.0, 3.0, 0.0]])
    assert principal_entries(matrix, 2, 2 / 9).nonzero().tolist() == [[0, 0], [1, 2]]
    after = matrix.clone()
    after[0, 0], after[2, 2] = 5.5, 0.5  # one changed entry of two is principal
    change = measure_change(matrix, after, rank=2, share=2 / 9)
    assert change.overlap == 0.5 and change.chance == pytest.approx(2 / 9)


def test_changed_entries_of_two_runs():
    first, second = torch.tensor([True, True, False]), torch.tensor([True, False, True])
    assert overlap_of_changes(first, second) == pytest.approx(1 / 3)
    assert isnan(overlap_of_changes(~(first | ~first), ~(first | ~first)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((BEFORE, BEFORE[:3]), "two matrices of one shape"),
        ((BEFORE[0], BEFORE[0]), "two matrices of one shape"),
        ((BEFORE, BEFORE, 0), "rank"),
        ((BEFORE, BEFORE, 1, 0.0), "share"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        measure_change(*arguments)
