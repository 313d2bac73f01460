"""All problems of one size, and the part of them that belongs to each split."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mmrl.rng import derived_rng

SYMBOLS = ("+", "-", "*")


@lru_cache(maxsize=8)
def problems(digits: int, operations: tuple[str, ...], held_out_fraction: float, seed: int, split: str) -> np.ndarray:
    """[problems, 3] int32: operation (position in `operations`), left and right operand, in seeded random order.

    a+b and b+a are one fact, as are a-b and b-a up to the sign, so both orders of a pair go to the same split: an
    unordered pair of operands {a, b} under one operation is drawn for the held-out split or it is not.
    """
    top = 10**digits
    low, high = np.triu_indices(top)  # every unordered pair once, equal operands included
    parts = []
    for position, symbol in enumerate(operations):
        rng = derived_rng("arithmetic", "split", digits, symbol, seed)
        held = round(held_out_fraction * len(low))
        pairs = rng.permutation(len(low))
        pairs = pairs[:held] if split == "held_out" else pairs[held:]
        a, b = low[pairs], high[pairs]
        other = a != b
        left, right = np.concatenate([a, b[other]]), np.concatenate([b, a[other]])
        parts.append(np.stack([np.full_like(left, position), left, right], axis=1).astype(np.int32))
    found = np.concatenate(parts)
    found = found[derived_rng("arithmetic", "order", digits, *operations, seed, split).permutation(len(found))]
    found.flags.writeable = False  # shared by every user of the cache
    return found


def result(symbol: str, left: int, right: int) -> int:
    """left + right, left - right or left * right."""
    return {"+": left + right, "-": left - right, "*": left * right}[symbol]
