"""What all continuous action heads are: a chain of Gaussian transitions whose end is a chunk of actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
    target: Tensor  # [M, H, A] the answer


class Chain(ABC):
    """x_0 -> x_1 -> ... -> x_K in K transitions; x_K is the chunk [H, A] in normalised units.

    The same `step` draws, scores again and decodes; the same `time` feeds the network in sampling and in training. A
    transition that a row does not draw (`open` False) is the chain's deterministic one and has deviation 0.
    """

    steps: int  # K
    answer: Literal["velocity", "noise", "mean"]  # what the network says of (x, time)
    start: bool = True  # whether x_0 ~ N(0, I) is stored before the transitions; otherwise it is 0 and is not
    spread: bool = False  # whether the network says a log-deviation too

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

    def opened(self, noise: Noise) -> Tensor:
        """[N, K] bool: the transitions that each row draws. All of them unless a kind says otherwise."""
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
