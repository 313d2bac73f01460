"""Which compositions are one function, and the least number of functions that computes it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product

from mmrl.core.rng import derive_rng
from tasks.strings.functions import FUNCTIONS, apply_chain

MOST_CHAINS = 20_000
"""Compositions of all levels up to that of a problem, of which the shortest are searched."""


@lru_cache(maxsize=64)
def list_words(letters: tuple[int, int]) -> tuple[str, ...]:
    """List words of all these lengths on which functions are compared.

    They are drawn from all letters and from four, two of them vowels, so that letters repeat.
    """
    rng = derive_rng("strings", "words on which functions differ")
    sizes, kinds = range(letters[0], letters[1] + 1), ("abcdefghijklmnopqrstuvwxyz", "abez")
    return tuple("".join(rng.choice(list(kind), size)) for kind in kinds for size in sizes for _ in range(40))


@lru_cache(maxsize=64)
def find_equal(names: tuple[str, ...], letters: tuple[int, int]) -> tuple[str, str] | None:
    """Find two functions that are equal on words of all these lengths; None where all differ."""
    outputs: dict[tuple[str, ...], str] = {}
    for name in dict.fromkeys(names):
        first = outputs.setdefault(tuple(FUNCTIONS[name][1](word) for word in list_words(letters)), name)
        if first != name:
            return first, name
    return None


def count_chains(names: Sequence[str], level: int) -> int:
    """Number of compositions of up to `level` functions, the empty one included."""
    return sum(len(names) ** number for number in range(level + 1))


@lru_cache(maxsize=16)
def shortest_chains(
    names: tuple[str, ...], letters: tuple[int, int], level: int
) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Map each composition of up to `level` functions to the first shortest one that is the same function.

    Compositions are the same if they are equal on `list_words`. The empty composition leaves a word as it is.
    """
    first: dict[tuple[str, ...], tuple[str, ...]] = {}  # by the outputs
    shortest = {}
    for number in range(level + 1):
        for chain in product(names, repeat=number):
            outputs = tuple([word, *apply_chain(chain, word)][-1] for word in list_words(letters))
            shortest[chain] = first.setdefault(outputs, chain)
    return shortest
