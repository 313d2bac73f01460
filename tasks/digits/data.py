"""Handwritten digits as images, split into training and held out."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from sklearn.datasets import load_digits

from mmrl.core.rng import derive_rng


@lru_cache(maxsize=4)
def load_scans(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Load all 1797 scans, uint8 [1797, size, size, 3], white on black, and their digits, int64 [1797].

    Source: Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998; the copy inside scikit-learn.
    """
    scans = load_digits()
    ink = np.round(scans.images * (255 / 16)).astype(np.uint8)  # [1797, 8, 8], from counts 0..16
    factor = size // 8
    grey = ink.repeat(factor, axis=1).repeat(factor, axis=2)
    return np.repeat(grey[..., None], 3, axis=3), scans.target


@lru_cache(maxsize=8)
def members(held_out_fraction: float, seed: int, split: str) -> tuple[int, ...]:
    """Indices of a split's scans, in seeded random order, stratified by digit."""
    digits = load_digits().target
    indices: list[int] = []
    for digit in range(10):
        positions = np.flatnonzero(digits == digit)
        positions = positions[derive_rng("digits", "split", digit, seed).permutation(len(positions))]
        num_held_out = round(held_out_fraction * len(positions))
        indices += (positions[:num_held_out] if split == "held_out" else positions[num_held_out:]).tolist()
    order = derive_rng("digits", "order", seed, split).permutation(len(indices))
    return tuple(indices[position] for position in order)
