"""Chain: a sampler of Gaussian transitions whose end is a chunk of actions, shared by all continuous action heads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from mmrl.core.rng import Noise

Prefix = tuple[Tensor, ...]
"""Encoded contexts as the head reads them, each [N, ...]."""


class TransitionParams(NamedTuple):
    """Parameters of Gaussian transitions: x' ~ N(mean, std^2), entry by entry; std 0 is a forced transition."""

    mean: Tensor  # [M, H, A]
    std: Tensor  # [M, H, A]


class DenoisingTarget(NamedTuple):
    """Denoising targets: what the network should predict at timesteps between noise and a demonstrated chunk."""

    x: Tensor  # [M, H, A] noisy chunk
    time: Tensor  # [M] in [0, 1], 1 is noise
    target: Tensor  # [M, H, A] the prediction; where `end_time` is given, the velocity at x
    end_time: Tensor | None = None  # [M] end of the interval of an average velocity; None for other predictions

    @staticmethod
    def concatenate(targets: Sequence[DenoisingTarget]) -> DenoisingTarget:
        """Concatenate several targets of one kind."""
        return DenoisingTarget(*(None if part[0] is None else torch.cat(part) for part in zip(*targets)))  # type: ignore[arg-type]


class Chain(ABC):
    """x_0 -> x_1 -> ... -> x_K in K transitions; x_K is the chunk [H, A] in normalised units.

    The same `step` draws, scores again and decodes; the same `time` feeds the network in sampling and in training. A
    transition that is not stochastic in a row (`stochastic` False) is the chain's deterministic one and has std 0.
    """

    steps: int  # K
    prediction_type: Literal["velocity", "average_velocity", "epsilon", "mean"]  # of the network at (x, time)
    stores_noise: bool = True  # whether x_0 ~ N(0, I) is stored before the transitions, or is 0 and not stored
    predicts_std: bool = False  # whether the network predicts a log-std too
    reads_end_time: bool = False  # whether the network reads the time of x_{i + 1} beside that of x_i

    @abstractmethod
    def time(self, index: Tensor) -> Tensor:
        """Return the network's time [M] of x_i for transition numbers i [M]."""

    @abstractmethod
    def step(
        self, x: Tensor, index: Tensor, prediction: Tensor, log_std: Tensor | None, stochastic: Tensor
    ) -> TransitionParams:
        """Compute transition `index` [M] from x [M, H, A], given the network's `prediction` (and `log_std`).

        `stochastic` [M] bool: whether the transition is drawn, or deterministic.
        """

    @abstractmethod
    def sample_target(self, chunk: Tensor, noise: Noise) -> DenoisingTarget:
        """Sample a timestep and noise for every demonstrated chunk [M, H, A], each from its own stream."""

    def stochastic_mask(self, noise: Noise) -> Tensor:
        """Choose the stochastic transitions of each row, [N, K] bool; all by default."""
        return torch.ones(len(noise), self.steps, dtype=torch.bool)

    @property
    def max_stochastic_steps(self) -> int:
        """Largest number of stochastic transitions of a row."""
        return self.steps


def check_minimum(name: str, value: float, minimum: float) -> None:
    """Refuse a setting of a chain below its minimum."""
    if value < minimum:
        raise ValueError(f"policy.chain.{name} must be at least {minimum}, got {value}")


def column(value: Tensor) -> Tensor:
    """Reshape [M] to [M, 1, 1], to broadcast with [M, H, A]."""
    return value[:, None, None]


def sample_transitions(noise: Noise, steps: int, eligible: range, single: bool) -> Tensor:
    """Sample one eligible transition per row uniformly, or select all of them, as [N, steps] bool."""
    number = torch.arange(steps)
    if not single:
        return ((number >= eligible.start) & (number < eligible.stop)).expand(len(noise), -1)
    return number == eligible.start + (noise.uniform() * len(eligible)).long()[:, None]


def check_teacher(chain: Chain, teacher: Chain | None) -> None:
    """Refuse a teacher that does not start from noise, or that needs an end time which the network does not read."""
    if teacher is None:
        return
    if not (chain.stores_noise and teacher.stores_noise):
        raise ValueError(
            "policy.teacher: distillation needs two chains that begin with noise; "
            f"{type(teacher if chain.stores_noise else chain).__name__} does not"
        )
    if teacher.reads_end_time and not chain.reads_end_time:
        raise ValueError(
            f"policy.teacher {type(teacher).__name__} needs average velocities, which the network of policy.chain "
            f"{type(chain).__name__} does not predict"
        )
