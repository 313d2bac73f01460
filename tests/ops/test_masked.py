"""Reductions over what counts."""

import torch
from torch.testing import assert_close

from mmrl.ops.masked import last_inside, masked_mean, masked_sum, masked_variance, masked_whiten, zero_outside

NAN = float("nan")


def test_mean_over_executed_choices():
    # (0.5 - 1 + 0.5) / 3 = 0; the mean over all five would be 1
    value = torch.tensor([0.5, -1.0, 2.0, 3.0, 0.5])
    mask = torch.tensor([1, 1, 0, 0, 1]).bool()
    assert_close(masked_mean(value, mask), torch.tensor(0.0))
    assert_close(masked_mean(value, torch.ones(5).bool()), torch.tensor(1.0))


def test_by_row_with_an_empty_row():
    value, mask = torch.tensor([[1.0, 3.0], [NAN, NAN]]), torch.tensor([[True, True], [False, False]])
    assert_close(masked_sum(value, mask, 1), torch.tensor([4.0, 0.0]))
    assert_close(masked_mean(value, mask, 1), torch.tensor([2.0, 0.0]))


def test_nothing_inside_is_zero_not_nan():
    value, mask = torch.full((2, 3), NAN), torch.zeros(2, 3).bool()
    for number in (masked_sum(value, mask), masked_mean(value, mask), masked_variance(value, mask)):
        assert number == 0
    assert_close(masked_whiten(value, mask), torch.zeros(2, 3))


def test_whiten():
    # inside: 1, 3 -> mean 2, population std 1
    value, mask = torch.tensor([1.0, NAN, 3.0]), torch.tensor([True, False, True])
    assert_close(masked_variance(value, mask), torch.tensor(1.0))
    assert_close(masked_whiten(value, mask), torch.tensor([-1.0, 0.0, 1.0]))


def test_gradient_does_not_pass_outside():
    value = torch.tensor([2.0, NAN], requires_grad=True)
    (masked_mean(zero_outside(value, torch.tensor([True, False])).exp(), torch.tensor([True, False]))).backward()
    assert_close(value.grad, torch.tensor([2.0, 0.0]).exp() * torch.tensor([1.0, 0.0]))


def test_a_row_reaches_to_its_last_choice_inside():
    mask = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]], dtype=torch.bool)
    assert last_inside(mask).tolist() == [3, 0, 4, 1]
