"""Level space: a box of named parameters, whose points are numbered so that a seed names one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LEVEL_BITS, START_BITS = 48, 12
MOST_BITS, MOST_PARAMETERS = 16, 12


@dataclass(frozen=True)
class LevelSpace:
    """Box of D named parameters, each in 2^b equal steps from its lower to its upper bound, both included.

    b = min(16, 48 // D). A level and one of its 4096 initial states are one whole number of 60 bits, the code, and the
    seed of an episode is 2 code + (0 for training, 1 for held-out). So the level of an episode follows from the seed
    that its environment is reset with, in every process and under every rollout.

    Args:
        bounds: lower and upper bound by parameter, in the environment's units.

    Raises:
        ValueError: there is no parameter or more than 12, or bounds are not two finite ascending numbers.
    """

    bounds: Mapping[str, tuple[float, float]]

    def __post_init__(self) -> None:
        if not 1 <= len(self.bounds) <= MOST_PARAMETERS:
            raise ValueError(f"a level space has 1 to {MOST_PARAMETERS} parameters, got {list(self.bounds)}")
        for name, pair in self.bounds.items():
            numbers = list(pair) if isinstance(pair, Sequence) and not isinstance(pair, str) else [pair]
            good = len(numbers) == 2 and all(isinstance(n, int | float) and math.isfinite(n) for n in numbers)
            if not good or not numbers[0] < numbers[1]:
                raise ValueError(f"levels.{name} must be two ascending numbers, [lower, upper], got {pair!r}")
        object.__setattr__(self, "bounds", {name: (float(a), float(b)) for name, (a, b) in self.bounds.items()})

    @property
    def bits(self) -> int:
        """Bits b of each parameter."""
        return min(MOST_BITS, LEVEL_BITS // len(self.bounds))

    def encode(self, level: Mapping[str, float], start: int) -> int:
        """Return the code of the nearest numbered level, with initial state number `start` modulo 4096.

        Raises:
            ValueError: the level does not name exactly the parameters, or one is out of its bounds.
        """
        code, most = 0, 2**self.bits - 1
        for name, value in self.check(level).items():
            low, high = self.bounds[name]
            code = code << self.bits | round((value - low) / (high - low) * most)
        return code << START_BITS | start % 2**START_BITS

    def check(self, level: Mapping[str, float]) -> dict[str, float]:
        """The level with its parameters in the order of the bounds.

        Raises:
            ValueError: it does not name exactly the parameters, or one is out of its bounds.
        """
        if level.keys() != self.bounds.keys():
            raise ValueError(f"a level must name {sorted(self.bounds)}, got {sorted(level)}")
        for name, (low, high) in self.bounds.items():
            if not low <= float(level[name]) <= high:
                raise ValueError(f"level {name}={float(level[name]):g} is out of its bounds [{low:g}, {high:g}]")
        return {name: float(level[name]) for name in self.bounds}

    def decode(self, seed: int) -> dict[str, float]:
        """Return the level that an episode with this seed has; every seed has one, and uniform seeds uniform ones."""
        code, most = seed >> 1 + START_BITS, 2**self.bits - 1
        level = {}
        for name, (low, high) in reversed(self.bounds.items()):
            level[name] = low + (code & most) / most * (high - low)
            code >>= self.bits
        return dict(reversed(level.items()))

    def grid(self, points: int, index: int) -> dict[str, float]:
        """Return level number `index` of the grid of cell centres, `points` per parameter, the last one running first.

        A parameter's values are low + (i + 1/2) / points (high - low).
        """
        level = {}
        for name, (low, high) in reversed(self.bounds.items()):
            index, place = divmod(index, points)
            level[name] = low + (place + 0.5) / points * (high - low)
        return dict(reversed(level.items()))

    def scale(self, level: Mapping[str, float]) -> np.ndarray:
        """Return a level with bounds at -1 and 1, float32 [D]."""
        pairs = self.bounds.items()
        return np.array([2 * (level[name] - low) / (high - low) - 1 for name, (low, high) in pairs], np.float32)
