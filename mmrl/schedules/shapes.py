"""Schedules that are functions of the iteration alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mmrl.schedules.base import Schedule


@dataclass(frozen=True)
class Linear(Schedule):
    """A straight line from `start` at iteration `delay` to `end` at iteration `delay + iterations`, constant outside.

    Args:
        start: first value.
        end: last value.
        iterations: between both.
        delay: iterations at `start` before the line begins.
    """

    start: float
    end: float
    iterations: int
    delay: int = 0

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ValueError(f"iterations must be at least 1, got {self.iterations}")
        if self.delay < 0:
            raise ValueError(f"delay must be >= 0, got {self.delay}")

    def __call__(self, iteration: int) -> float:
        return self.start + (self.end - self.start) * self._fraction(iteration)

    def _fraction(self, iteration: int) -> float:
        return min(max((iteration - self.delay) / self.iterations, 0.0), 1.0)


@dataclass(frozen=True)
class Cosine(Linear):
    """Half a cosine from `start` to `end`: value = start + (end - start) (1 - cos(pi s)) / 2, s the fraction of
    `iterations` that has passed.

    Args:
        start: first value.
        end: last value.
        iterations: between both.
        delay: iterations at `start` before the curve begins.
    """

    def __call__(self, iteration: int) -> float:
        fraction = (1 - math.cos(math.pi * self._fraction(iteration))) / 2
        return self.start + (self.end - self.start) * fraction


@dataclass(frozen=True)
class Piecewise(Schedule):
    """Straight lines between values at given iterations, or steps: each value holds until the next one.

    Args:
        values: the value at each iteration that is named, as {0: 1.0, 50: 0.1}.
        steps: hold each value until the next one, in place of lines.
    """

    values: Mapping[int, float]
    steps: bool = False

    def __post_init__(self) -> None:
        if not self.values or min(self.values) < 0:
            raise ValueError(f"values must name the value of at least one iteration from 0 on, got {dict(self.values)}")

    def __call__(self, iteration: int) -> float:
        places = sorted(self.values)
        before = max((place for place in places if place <= iteration), default=places[0])
        after = min((place for place in places if place > iteration), default=before)
        if self.steps or after <= before:
            return self.values[before]
        fraction = max(iteration - before, 0) / (after - before)
        return self.values[before] + (self.values[after] - self.values[before]) * fraction


@dataclass(frozen=True)
class Alternating(Schedule):
    """Values that follow each other, each for some iterations, again and again.

    SIRI alternates short and long completions (`sampling.max_tokens`), to compress the reasoning and then to let it
    grow. Source: SIRI: Scaling Iterative Reinforcement Learning with Interleaved Compression, 2025, arXiv:2509.25176.

    Args:
        values: in their order.
        iterations: of each value.
    """

    values: Sequence[float]
    iterations: int

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("values is empty; name at least one")
        if self.iterations < 1:
            raise ValueError(f"iterations must be at least 1, got {self.iterations}")

    def __call__(self, iteration: int) -> float:
        return self.values[iteration // self.iterations % len(self.values)]


@dataclass(frozen=True)
class CosineCycle(Schedule):
    """Cosine waves from `high` down to `low` and back: value = low + (high - low) (1 + cos(2 pi i / period)) / 2.

    SIRI lets the limit of a completion's length follow it. Source: SIRI: Scaling Iterative Reinforcement Learning with
    Interleaved Compression, 2025, cosine length scheduler, arXiv:2509.25176.

    Args:
        high: value at iterations 0, period, 2 period and so on.
        low: value half way between them.
        period: iterations of a cycle.
    """

    high: float
    low: float
    period: int

    def __post_init__(self) -> None:
        if self.period < 1:
            raise ValueError(f"period must be at least 1, got {self.period}")

    def __call__(self, iteration: int) -> float:
        return self.low + (self.high - self.low) * (1 + math.cos(2 * math.pi * iteration / self.period)) / 2
