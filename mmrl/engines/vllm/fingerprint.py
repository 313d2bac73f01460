"""Two numbers that say which tensor one holds: its sum and its sum of squares, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

PIECE = 1 << 22  # elements widened at once: 32 MiB

Fingerprint = tuple[float, float]


def fingerprint(tensor: Tensor) -> Fingerprint:
    """(sum x, sum x^2), added up in float64 where the tensor lies; (0, 0) for an empty one."""
    total = torch.zeros(2, dtype=torch.float64, device=tensor.device)
    for piece in tensor.detach().reshape(-1).split(PIECE):
        x = piece.double()
        total[0] += x.sum()
        total[1] += x.square().sum()
    first, second = total.tolist()
    return first, second


def rounding(count: int, squares: float) -> Fingerprint:
    """How far two float64 sums of the same `count` numbers, added in any two orders, may lie apart.

    Adding n numbers in any order errs by at most n u sum|x| with u = 2^-53, and sum|x| <= sqrt(n sum x^2); two
    such sums lie apart by at most twice that.
    """
    step = count * 2.0**-52
    return step * (count * squares) ** 0.5, step * squares
