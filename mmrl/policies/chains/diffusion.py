"""Diffusion heads: the network answers the noise in x."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.ops.diffusion import cosine_kept, ddim_step, ddpm_step, named_action, noised
from mmrl.policies.chains.base import Chain, Lesson, Step, at_least, column, one_of
from mmrl.rng import Noise


class Diffusion(Chain):
    """Levels 0 .. L of noise, a cosine schedule, and K of the levels visited on the way from L to 0.

    Training places: a level drawn evenly from 1 .. L; target the noise.
    Source: Diffusion Policy Policy Optimization, 2024, section 4, arXiv:2409.00588.
    """

    answer = "noise"
    levels: int
    bound: float | None
    least: float
    most: float | None
    first: int

    def stochastic_mask(self, noise: Noise) -> Tensor:
        return one_of(noise, self.steps, range(self.first, self.steps), hybrid=False)

    def place(self, index: Tensor) -> Tensor:
        """The level [M] of x_i: L - i L / K, rounded down."""
        return self.levels - index * self.levels // self.steps

    def time(self, index: Tensor) -> Tensor:
        return self.place(index).float() / self.levels

    def lesson(self, chunk: Tensor, noise: Noise) -> Lesson:
        level = 1 + (noise.uniform() * self.levels).long().to(chunk.device)
        end = noise.normal(*chunk.shape[1:]).to(chunk.device)
        kept = cosine_kept(self.levels, chunk.device)[level]
        return Lesson(noised(chunk, end, column(kept)), level.float() / self.levels, end)

    def step(self, x: Tensor, index: Tensor, answer: Tensor, spread: Tensor | None, open: Tensor) -> Step:
        share = cosine_kept(self.levels, x.device)
        kept, after = column(share[self.place(index)]), column(share[self.place(index + 1)])
        action, end = named_action(x, answer, kept, self.bound)
        mean, deviation = self.posterior(x, action, end, kept, after, column(open))
        return Step(mean, (deviation.clamp(min=self.least, max=self.most) * column(open)).expand_as(mean))

    def posterior(
        self, x: Tensor, action: Tensor, end: Tensor, kept: Tensor, after: Tensor, open: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the next x."""
        raise NotImplementedError


def _check(chain: Diffusion) -> None:
    at_least("steps", chain.steps, 1)
    if chain.levels % chain.steps:
        raise ValueError(f"policy.chain.levels={chain.levels} must be a multiple of steps={chain.steps}")
    if chain.least <= 0:
        raise ValueError(f"policy.chain.least must be > 0, got {chain.least}: a choice needs a density")
    if chain.most is not None and chain.most < chain.least:
        raise ValueError(f"policy.chain.most={chain.most} is smaller than least={chain.least}")
    if not 0 <= chain.first < chain.steps:
        raise ValueError(f"policy.chain.first={chain.first} leaves none of {chain.steps} transitions to be open")


@dataclass(frozen=True)
class DDPM(Diffusion):
    """Every level is visited; transitions are the posterior of the diffusion.

    Args:
        steps: K = L.
        bound: named actions are cut to [-bound, bound]; none leaves them.
        least: floor of the standard deviation, in sampling and in scoring alike.
        most: its ceiling; None for none.
        first: transitions before this number are never open, as of FlowSDE; the last ones are fine-tuned.
    """

    steps: int = 10
    bound: float | None = 1.0
    least: float = 0.1
    most: float | None = None
    first: int = 0

    def __post_init__(self) -> None:
        _check(self)

    @property
    def levels(self) -> int:  # type: ignore[override]
        return self.steps

    def posterior(self, x, action, end, kept, after, open):
        return ddpm_step(x, action, kept, after)


@dataclass(frozen=True)
class DDIM(Diffusion):
    """K of the L levels are visited; fresh noise is scaled by eta.

    Args:
        steps: K.
        levels: L, a multiple of K.
        eta: 0 has no noise but the floor, 1 that of DDPM.
        bound: named actions are cut to [-bound, bound]; none leaves them.
        least: floor of the standard deviation, in sampling and in scoring alike.
        most: its ceiling; None for none.
        first: transitions before this number are never open, as of FlowSDE; the last ones are fine-tuned.
    """

    steps: int = 5
    levels: int = 20
    eta: float = 1.0
    bound: float | None = 1.0
    least: float = 0.1
    most: float | None = None
    first: int = 0

    def __post_init__(self) -> None:
        _check(self)
        if not 0 <= self.eta <= 1:
            raise ValueError(f"policy.chain.eta must be in [0, 1], got {self.eta}")

    def posterior(self, x, action, end, kept, after, open):
        return ddim_step(action, end, kept, after, torch.where(open, self.eta, 0.0))
