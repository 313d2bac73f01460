"""How training changed weight matrices: share of unchanged entries, spectral shift, principal angles, overlap.

The Path Not Taken: RLVR Provably Learns Off the Principals, 2025, arXiv:2511.08567.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import torch
from torch import Tensor

from mmrl.core.errors import check_at_least, check_interval

TOLERANCE = 1e-3
"""Largest relative change that a weight in bfloat16, with its 8 bits of precision, does not show."""


@dataclass(frozen=True)
class WeightChange:
    """Change of one matrix, or means over several.

    Attributes:
        unchanged: share of the entries that bfloat16 shows no change of.
        shift: normalised spectral shift, |sigma(after) - sigma(before)| / |sigma(before)|.
        left: largest principal angle of the top left singular subspaces, in degrees.
        right: the same of the right ones.
        overlap: share of the changed entries that are principal; `chance` for changes anywhere, nan without a change.
        chance: share of the entries that are principal.
    """

    unchanged: float
    shift: float
    left: float
    right: float
    overlap: float
    chance: float


def unchanged_entries(before: Tensor, after: Tensor, tolerance: float = TOLERANCE) -> Tensor:
    """Return where |after - before| <= tolerance * max(|before|, |after|), bool."""
    return (after - before).abs() <= tolerance * torch.maximum(before.abs(), after.abs())


def principal_angle(before: Tensor, after: Tensor) -> float:
    """Compute the largest principal angle in degrees between two subspaces of orthonormal columns [D, k].

    The cosines of the angles are the singular values of before^T after, the sines those of the part of `after` outside
    the first subspace. Small angles are those of the sines, which rounding spares.
    Source: Bjoerck and Golub, "Numerical Methods for Computing Angles Between Linear Subspaces", 1973.
    """
    cosine = torch.linalg.matrix_norm(before.T @ after, -2)
    sine = torch.linalg.matrix_norm(after - before @ (before.T @ after), 2)
    return float(torch.rad2deg(torch.atan2(sine, cosine.clamp(min=0))))


def principal_entries(matrix: Tensor, rank: int, share: float) -> Tensor:
    """Return the largest entries of |rank-k part of a matrix|, bool: the stated share of all, at least one."""
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    part = (left[:, :rank] * values[:rank]) @ right[:rank]
    count = max(1, round(share * part.numel()))
    mask = torch.zeros(part.numel(), dtype=torch.bool)
    mask[part.abs().flatten().topk(count).indices] = True
    return mask.view_as(part)


def measure_change(before: Tensor, after: Tensor, rank: int = 8, share: float = 0.1) -> WeightChange:
    """Measure the change of a matrix [D, E].

    Args:
        before: at the start of training.
        after: at its end.
        rank: singular directions of the subspaces and of the principal part; at most min(D, E) - 1 of them, since all
            directions together are the same space.
        share: of the entries that are principal, in (0, 1].

    Raises:
        ValueError: the shapes differ, are no matrix, or an argument is out of range.
    """
    check_at_least(1, "weights", rank=rank)
    check_interval("weights", "(0, 1]", share=share)
    if before.shape != after.shape or before.dim() != 2:
        raise ValueError(f"weights: two matrices of one shape are compared, got {before.shape} and {after.shape}")
    first, second = before.double(), after.double()
    rank = max(1, min(rank, min(first.shape) - 1))
    (left, values, right), (new_left, new_values, new_right) = (
        torch.linalg.svd(each, full_matrices=False) for each in (first, second)
    )
    same = unchanged_entries(first, second)
    principal = principal_entries(first, rank, share)
    norm = torch.linalg.vector_norm(values)
    return WeightChange(
        unchanged=float(same.double().mean()),
        shift=float(torch.linalg.vector_norm(new_values - values) / norm) if norm > 0 else nan,
        left=principal_angle(left[:, :rank], new_left[:, :rank]),
        right=principal_angle(right[:rank].T, new_right[:rank].T),
        overlap=float(principal[~same].double().mean()) if not same.all() else nan,
        chance=float(principal.double().mean()),
    )


def overlap_of_changes(first: Tensor, second: Tensor) -> float:
    """Compute the Jaccard index of two sets of changed entries, bool tensors of one shape; nan if both are empty."""
    union = int((first | second).sum())
    return int((first & second).sum()) / union if union else nan
