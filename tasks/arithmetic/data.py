"""All arithmetic problems of one size, split into training and held out."""

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
    """Problems in seeded random order, [problems, 1 + operands] int32: index of the operation, then the operands.

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
        num_held_out = np.zeros(len(facts), dtype=bool)
        num_held_out[facts[: round(held_out_fraction * len(facts))]] = True
        rows = everything[num_held_out[fact] == (split == "held_out")]
        parts.append(np.concatenate([np.full((len(rows), 1), position, dtype=np.int32), rows], axis=1))
    problem_rows = np.concatenate(parts)
    order = derive_rng("arithmetic", "order", *digits, *operations, seed, split).permutation(len(problem_rows))
    problem_rows = problem_rows[order]
    problem_rows.flags.writeable = False  # shared by every user of the cache
    return problem_rows


def result(symbol: str, operands: Sequence[int]) -> int:
    """Apply the operation from left to right."""
    return reduce({"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[symbol], operands)
