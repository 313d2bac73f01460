"""Fingerprint of a tensor: its sum and its sum of squares, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

ROW = 1 << 11
PIECE = 1 << 22  # elements converted to float64 at once: 32 MiB

Fingerprint = tuple[float, float]


def fingerprint(tensor: Tensor) -> Fingerprint:
    """Compute (sum x, sum x^2) in float64 on the tensor's device; (0, 0) for an empty tensor.

    Rows are summed first, then their sums, so that an element takes part in few additions, see `rounding`.
    """
    total = torch.zeros(2, dtype=torch.float64, device=tensor.device)
    for piece in tensor.detach().reshape(-1).split(PIECE):
        x = piece.double()
        total += torch.stack([_sum(x), _sum(x.square())])
    first, second = total.tolist()
    return first, second


def _sum(x: Tensor) -> Tensor:
    full = len(x) // ROW * ROW
    return x[:full].view(-1, ROW).sum(1).sum() + x[full:].sum()


def rounding(count: int, squares: float) -> Fingerprint:
    """Bound the difference of two fingerprints of the same `count` numbers, summed in any order.

    A sum in which every number takes part in at most d additions errs by at most d u sum|x|, u = 2^-53, and
    sum|x| <= sqrt(count sum x^2). Here d is at most a row, the rows of a piece, and the pieces; two sums err twice.
    """
    step = 2.0**-52 * (ROW + PIECE // ROW + count // PIECE + 4)
    return step * (count * squares) ** 0.5, step * squares
