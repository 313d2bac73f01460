"""Counter-based random streams keyed by what is drawn: no state to save, exact resume.

A draw is keyed by (seed, purpose, iteration, slot, sample index, ...). It does not depend on the order of calls, on how
requests are batched, or on the number of processes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from mmrl.core.lazy_module import torch

if TYPE_CHECKING:
    from torch import Tensor

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_27, _30, _31, _41 = (np.uint64(bits) for bits in (27, 30, 31, 41))
_HALF, _STEP = np.float32(0.5), np.float32(2.0**-23)


def derive_seed(*key: int | str) -> int:
    """Derive a 64-bit seed from a key alone."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def advance_seed(seed: int, count: int) -> int:
    """Return the seed of a row of `Noise` whose numbers are those of `seed` from number `count` on."""
    return (seed + count * int(_GOLDEN)) % 2**64


def derive_rng(*key: int | str) -> np.random.Generator:
    """Build a numpy generator whose stream is a function of the key alone."""
    return np.random.default_rng(derive_seed(*key))


class Noise:
    """One independent random stream per row: row i's k-th number depends on seeds[i] and k alone.

    Counter-based: number k of a row is splitmix64(seed + k * golden ratio).
    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014, figure 17.
    """

    def __init__(self, seeds: Sequence[int] | np.ndarray):
        self.seeds = np.asarray(seeds, dtype=np.uint64)
        self._count = np.zeros(len(self.seeds), dtype=np.uint64)

    def __len__(self) -> int:
        return len(self.seeds)

    def __getitem__(self, index: Any) -> Noise:
        """Select the streams of some rows; each continues at its present position."""
        part = Noise(self.seeds[index])
        part._count = self._count[index].copy()
        return part

    def uniform(self, *shape: int) -> Tensor:
        """Draw uniform numbers in (0, 1), float32 [rows, *shape], on the CPU."""
        return torch.from_numpy(self._levels(shape, np.float32))

    def _levels(self, shape: tuple[int, ...], dtype: type[np.floating]) -> np.ndarray:
        """Draw the next numbers of each row in (0, 1), equal in every precision."""
        count = math.prod(shape)
        z = self.seeds + self._count * _GOLDEN
        self._count += np.uint64(count)
        z = _mix(z[:, None] + _first(count))
        z >>= _41  # 23 bits and a half step: exactly representable in float32 and never 0 or 1
        value = z.astype(dtype)
        value += _HALF
        value *= _STEP
        return value.reshape(len(self), *shape)

    def integers(self, rows: Sequence[int] | slice = slice(None)) -> np.ndarray:
        """Draw the next number of some rows, uint64 [len(rows)]: seeds of further streams."""
        self._count[rows] += np.uint64(1)
        return _mix(self.seeds[rows] + self._count[rows] * _GOLDEN)

    def normal(self, *shape: int) -> Tensor:
        """Draw standard normal numbers, float32 [rows, *shape], by the inverse CDF."""
        return torch.special.ndtri(torch.from_numpy(self._levels(shape, np.float64))).float()


def _mix(z: np.ndarray) -> np.ndarray:
    """Apply splitmix64's output function in place; unsigned arrays wrap around without a warning."""
    z ^= z >> _30
    z *= _FIRST
    z ^= z >> _27
    z *= _SECOND
    z ^= z >> _31
    return z


@lru_cache(maxsize=64)
def _first(count: int) -> np.ndarray:
    """1, 2, ..., count golden ratios."""
    out = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
    out.setflags(write=False)
    return out
