"""Diffusion heads (DDPM, DDIM): the network predicts the noise epsilon in x."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mmrl.core.errors import check_fraction
from mmrl.core.rng import Noise
from mmrl.ops.diffusion import add_noise, cosine_alphas_cumprod, ddim_step, ddpm_step, predict_x0
from mmrl.policies.vla.chains.base import (
    Chain,
    DenoisingTarget,
    TransitionParams,
    check_minimum,
    column,
    sample_transitions,
)


class Diffusion(Chain):
    """Levels 0 .. L of noise, a cosine schedule, and K of the levels visited on the way from L to 0.

    Training: a level drawn evenly from 1 .. L; the target is the noise.
    Source: Diffusion Policy Policy Optimization, 2024, section 4, arXiv:2409.00588.
    """

    prediction_type = "epsilon"
    levels: int
    bound: float | None
    min_std: float
    max_std: float | None
    first_stochastic_step: int
    refit_epsilon: bool = True  # whether a clipped x_0 changes epsilon

    def stochastic_mask(self, noise: Noise) -> Tensor:
        return sample_transitions(noise, self.steps, range(self.first_stochastic_step, self.steps), single=False)

    def level(self, index: Tensor) -> Tensor:
        """Return the noise level [M] of x_i: L - i L / K, rounded down."""
        return self.levels - index * self.levels // self.steps

    def time(self, index: Tensor) -> Tensor:
        return self.level(index).float() / self.levels

    def sample_target(self, chunk: Tensor, noise: Noise) -> DenoisingTarget:
        level = 1 + (noise.uniform() * self.levels).long().to(chunk.device)
        epsilon = noise.normal(*chunk.shape[1:]).to(chunk.device)
        alpha_cumprod = cosine_alphas_cumprod(self.levels, chunk.device)[level]
        return DenoisingTarget(add_noise(chunk, epsilon, column(alpha_cumprod)), level.float() / self.levels, epsilon)

    def step(
        self, x: Tensor, index: Tensor, prediction: Tensor, log_std: Tensor | None, stochastic: Tensor
    ) -> TransitionParams:
        schedule = cosine_alphas_cumprod(self.levels, x.device)
        alpha_cumprod, alpha_cumprod_prev = column(schedule[self.level(index)]), column(schedule[self.level(index + 1)])
        x0, epsilon = predict_x0(x, prediction, alpha_cumprod, self.bound)
        epsilon = epsilon if self.refit_epsilon else prediction
        mean, std = self.posterior(x, x0, epsilon, alpha_cumprod, alpha_cumprod_prev, column(stochastic))
        return TransitionParams(
            mean, (std.clamp(min=self.min_std, max=self.max_std) * column(stochastic)).expand_as(mean)
        )

    def posterior(
        self,
        x: Tensor,
        x0: Tensor,
        epsilon: Tensor,
        alpha_cumprod: Tensor,
        alpha_cumprod_prev: Tensor,
        stochastic: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Compute mean and std of the next x."""
        raise NotImplementedError


def _check(chain: Diffusion) -> None:
    check_minimum("steps", chain.steps, 1)
    if chain.levels % chain.steps:
        raise ValueError(f"policy.chain.levels={chain.levels} must be a multiple of steps={chain.steps}")
    if chain.min_std <= 0:
        raise ValueError(
            f"policy.chain.min_std must be > 0, got {chain.min_std}: a stochastic transition needs a density"
        )
    if chain.max_std is not None and chain.max_std < chain.min_std:
        raise ValueError(f"policy.chain.max_std={chain.max_std} is smaller than min_std={chain.min_std}")
    if not 0 <= chain.first_stochastic_step < chain.steps:
        raise ValueError(
            f"policy.chain.first_stochastic_step={chain.first_stochastic_step} leaves none of {chain.steps} "
            "transitions to be stochastic"
        )


@dataclass(frozen=True)
class DDPM(Diffusion):
    """DDPM: every level is visited; transitions are the posterior of the diffusion.

    Args:
        steps: K = L.
        bound: predicted actions x_0 are clipped to [-bound, bound]; None does not clip.
        min_std: lower bound of the standard deviation, in sampling and in scoring.
        max_std: upper bound of the standard deviation; None for no bound.
        first_stochastic_step: earlier transitions are deterministic, so that RL trains the later ones only.
    """

    steps: int = 10
    bound: float | None = 1.0
    min_std: float = 0.1
    max_std: float | None = None
    first_stochastic_step: int = 0

    def __post_init__(self) -> None:
        _check(self)

    @property
    def levels(self) -> int:  # type: ignore[override]
        return self.steps

    def posterior(self, x, x0, epsilon, alpha_cumprod, alpha_cumprod_prev, stochastic):
        return ddpm_step(x, x0, alpha_cumprod, alpha_cumprod_prev)


@dataclass(frozen=True)
class DDIM(Diffusion):
    """DDIM: K of the L levels are visited; fresh noise is scaled by eta.

    Args:
        steps: K.
        levels: L, a multiple of K.
        eta: scale of the noise: with 0 the std is min_std, with 1 it is DDPM's.
        bound: predicted actions x_0 are clipped to [-bound, bound]; None does not clip.
        min_std: lower bound of the standard deviation, in sampling and in scoring.
        max_std: upper bound of the standard deviation; None for no bound.
        first_stochastic_step: earlier transitions are deterministic, so that RL trains the later ones only.
        spacing: "trailing" visits L, L - L/K, ..., L/K; "leading" visits L - L/K + 1, ..., 1, as diffusers does.
        refit_epsilon: a clipped x_0 changes epsilon to the one that fits it; diffusers leaves it.
    """

    steps: int = 5
    levels: int = 20
    eta: float = 1.0
    bound: float | None = 1.0
    min_std: float = 0.1
    max_std: float | None = None
    first_stochastic_step: int = 0
    spacing: Literal["trailing", "leading"] = "trailing"
    refit_epsilon: bool = True

    def __post_init__(self) -> None:
        _check(self)
        check_fraction("policy.chain", eta=self.eta)
        if self.spacing not in ("trailing", "leading"):
            raise ValueError(f"policy.chain.spacing must be trailing or leading, got {self.spacing!r}")

    def level(self, index: Tensor) -> Tensor:
        level = super().level(index)
        return level if self.spacing == "trailing" else (level - self.levels // self.steps + 1).clamp(min=0)

    def posterior(self, x, x0, epsilon, alpha_cumprod, alpha_cumprod_prev, stochastic):
        return ddim_step(x0, epsilon, alpha_cumprod, alpha_cumprod_prev, torch.where(stochastic, self.eta, 0.0))
