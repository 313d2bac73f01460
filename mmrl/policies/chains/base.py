"""What all continuous action heads are: a chain of Gaussian transitions whose end is a chunk of actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from mmrl.rng import Noise


class Step(NamedTuple):
    """Where transitions lead: x' ~ N(mean, deviation^2), entry by entry; deviation 0 is a forced transition."""

    mean: Tensor  # [M, H, A]
    deviation: Tensor  # [M, H, A]


class Lesson(NamedTuple):
    """What the network shall answer at places between noise and a demonstrated chunk."""

    x: Tensor  # [M, H, A] where
    time: Tensor  # [M] in [0, 1], 1 is noise
    target: Tensor  # [M, H, A] the answer; where `until` is given, the velocity at x
    until: Tensor | None = None  # [M] time that an average velocity leads to; None where the network is not told one

    @staticmethod
    def joined(lessons: Sequence[Lesson]) -> Lesson:
        """Several lessons of one kind as one."""
        return Lesson(*(None if part[0] is None else torch.cat(part) for part in zip(*lessons)))  # type: ignore[arg-type]


class Chain(ABC):
    """x_0 -> x_1 -> ... -> x_K in K transitions; x_K is the chunk [H, A] in normalised units.

    The same `step` draws, scores again and decodes; the same `time` feeds the network in sampling and in training. A
    transition that a row does not draw (`open` False) is the chain's deterministic one and has deviation 0.
    """

    steps: int  # K
    answer: Literal["velocity", "average velocity", "noise", "mean"]  # what the network says of (x, time)
    start: bool = True  # whether x_0 ~ N(0, I) is stored before the transitions; otherwise it is 0 and is not
    spread: bool = False  # whether the network says a log-deviation too
    spans: bool = False  # whether the network is told the time of x_{i + 1} beside that of x_i

    @abstractmethod
    def time(self, index: Tensor) -> Tensor:
        """Network time [M] of x_i, for the numbers i of transitions [M]."""

    @abstractmethod
    def step(self, x: Tensor, index: Tensor, answer: Tensor, spread: Tensor | None, open: Tensor) -> Step:
        """Transition number `index` [M] from x [M, H, A], where the network answers `answer` (and `spread`).

        `open` [M] bool: whether the transition is drawn, or deterministic.
        """

    @abstractmethod
    def lesson(self, chunk: Tensor, noise: Noise) -> Lesson:
        """One training place for every demonstrated chunk [M, H, A], drawn from its own stream."""

    def stochastic_mask(self, noise: Noise) -> Tensor:
        """Stochastic transitions of each row, [N, K] bool; all of them unless a kind overrides it."""
        return torch.ones(len(noise), self.steps, dtype=torch.bool)

    @property
    def draws(self) -> int:
        """Most transitions that one row draws."""
        return self.steps


def at_least(name: str, value: float, least: float) -> None:
    """Refuse a setting of a chain that is too small."""
    if value < least:
        raise ValueError(f"policy.chain.{name} must be at least {least}, got {value}")


def column(value: Tensor) -> Tensor:
    """[M] as [M, 1, 1], to meet [M, H, A]."""
    return value[:, None, None]


def one_of(noise: Noise, steps: int, eligible: range, hybrid: bool) -> Tensor:
    """[N, steps] bool: of the eligible transitions one per row, drawn evenly, or all."""
    number = torch.arange(steps)
    if not hybrid:
        return ((number >= eligible.start) & (number < eligible.stop)).expand(len(noise), -1)
    return number == eligible.start + (noise.uniform() * len(eligible)).long()[:, None]


def check_teacher(chain: Chain, teacher: Chain | None) -> None:
    """Refuse a teacher that does not begin where the chain begins, or that tells the network what it cannot hear."""
    if teacher is None:
        return
    if not (chain.start and teacher.start):
        raise ValueError(
            "policy.teacher: learning where noise is led needs two chains that begin with noise; "
            f"{type(teacher if chain.start else chain).__name__} does not"
        )
    if teacher.spans and not chain.spans:
        raise ValueError(
            f"policy.teacher {type(teacher).__name__} asks for average velocities, which the network of policy.chain "
            f"{type(chain).__name__} is not built for"
        )
