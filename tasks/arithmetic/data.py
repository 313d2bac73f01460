"""All problems of one size, and the part of them that belongs to each split."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce

import numpy as np

from mmrl.rng import derive_rng

SYMBOLS = ("+", "-", "*")
MOST = 6  # digits of a question, since all its problems are listed


@lru_cache(maxsize=8)
def problems(
    digits: tuple[int, ...], operations: tuple[str, ...], held_out_fraction: float, seed: int, split: str
) -> np.ndarray:
    """[problems, 1 + operands] int32: operation (position in `operations`), then the operands, in seeded random order.

    Orders of the same operands are one fact, or nearly, so all of them go to the same split: a multiset of operands
    under one operation is drawn for the held-out split or it is not.
    """
    everything = np.indices([10**d for d in digits], dtype=np.int32).reshape(len(digits), -1).T
    _, fact = np.unique(np.sort(everything, axis=1), axis=0, return_inverse=True)
    fact = fact.reshape(-1)
    parts = []
    for position, symbol in enumerate(operations):
        rng = derive_rng("arithmetic", "split", *digits, symbol, seed)
        facts = rng.permutation(fact.max() + 1)
        held = np.zeros(len(facts), dtype=bool)
        held[facts[: round(held_out_fraction * len(facts))]] = True
        rows = everything[held[fact] == (split == "held_out")]
        parts.append(np.concatenate([np.full((len(rows), 1), position, dtype=np.int32), rows], axis=1))
    found = np.concatenate(parts)
    order = derive_rng("arithmetic", "order", *digits, *operations, seed, split).permutation(len(found))
    found = found[order]
    found.flags.writeable = False  # shared by every user of the cache
    return found


def result(symbol: str, operands: Sequence[int]) -> int:
    """The operation applied from left to right."""
    return reduce({"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[symbol], operands)
