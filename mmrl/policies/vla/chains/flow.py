"""Flow matching heads: the network predicts a velocity; samplers differ in where fresh noise enters."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.errors import check_interval
from mmrl.core.rng import Noise
from mmrl.ops.flow import bounded_std, cps_step, interpolate, sde_scale, sde_step, time_grid
from mmrl.policies.vla.chains.base import (
    Chain,
    DenoisingTarget,
    TransitionParams,
    check_minimum,
    column,
    sample_transitions,
)


class Flow(Chain):
    """K equal steps from time 1 (noise) to time 0 (chunk).

    Training: t = 0.001 + 0.999 b with b ~ Beta(1.5, 1), so b = u^(2/3); the target is noise - chunk.
    Source: pi0: A Vision-Language-Action Flow Model, 2024, section IV and appendix B, arXiv:2410.24164, with time
    running the other way (its openpi code).
    """

    prediction_type = "velocity"

    def time(self, index: Tensor) -> Tensor:
        return time_grid(self.steps, index.device)[index]

    def sample_target(self, chunk: Tensor, noise: Noise) -> DenoisingTarget:
        time = 0.001 + 0.999 * noise.uniform().to(chunk.device) ** (2 / 3)
        epsilon = noise.normal(*chunk.shape[1:]).to(chunk.device)
        return DenoisingTarget(interpolate(chunk, epsilon, column(time)), time, epsilon - chunk)

    def step(
        self, x: Tensor, index: Tensor, prediction: Tensor, log_std: Tensor | None, stochastic: Tensor
    ) -> TransitionParams:
        time, next_time = column(self.time(index)), column(self.time(index + 1))
        mean, std = self.kernel(x, prediction, log_std, time, next_time, column(stochastic))
        return TransitionParams(mean, std.expand_as(mean))

    @abstractmethod
    def kernel(
        self, x: Tensor, velocity: Tensor, log_std: Tensor | None, time: Tensor, next_time: Tensor, stochastic: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute mean and std of x at `next_time`; the std is 0 where `stochastic` is False."""


@dataclass(frozen=True)
class FlowODE(Flow):
    """Deterministic ODE sampler: for cloning and evaluation; it has no log-probabilities to learn from rewards.

    Args:
        steps: K.
    """

    steps: int = 4

    def __post_init__(self) -> None:
        check_minimum("steps", self.steps, 1)

    def stochastic_mask(self, noise: Noise) -> Tensor:
        return torch.zeros(len(noise), self.steps, dtype=torch.bool)

    def kernel(self, x, velocity, log_std, time, next_time, stochastic):
        return sde_step(x, velocity, time, next_time, torch.zeros_like(time))


@dataclass(frozen=True)
class FlowSDE(Flow):
    """Flow-SDE (pi_RL, Flow-GRPO): transitions of a stochastic differential equation with the marginals of the flow.

    Source: pi_RL, 2025, sections 4.2 and 4.3, arXiv:2510.25889. Differs: each row draws the number of its stochastic
    transition from its own stream; the released code draws one for the whole batch.

    Args:
        steps: K.
        noise_level: a; the first transition has exactly this standard deviation.
        single_stochastic_step: one transition of each row is stochastic, drawn evenly, and the others follow the ODE,
            so that learning runs the network once per row; otherwise all are stochastic.
        first_stochastic_step: earlier transitions are never stochastic. Where all noise leads to nearly the same
            action, as after cloning a deterministic expert, later transitions undo what early ones drew: their part
            of the gradient is noise. Source: MixGRPO, 2025, section 3.2, arXiv:2507.21802 (a window, which it moves).
        ignore_last: the last transition is never stochastic.
    """

    steps: int = 4
    noise_level: float = 0.5
    single_stochastic_step: bool = True
    first_stochastic_step: int = 0
    ignore_last: bool = False

    def __post_init__(self) -> None:
        check_minimum("steps", self.steps, 2)
        if not 0 <= self.first_stochastic_step < self.steps - self.ignore_last:
            raise ValueError(
                f"policy.chain.first_stochastic_step={self.first_stochastic_step} leaves none of {self.steps} "
                "transitions to be stochastic"
            )
        if self.noise_level <= 0:
            raise ValueError(
                f"policy.chain.noise_level must be > 0, got {self.noise_level}; without noise take FlowODE"
            )

    @property
    def max_stochastic_steps(self) -> int:
        return 1 if self.single_stochastic_step else self.steps

    def stochastic_mask(self, noise: Noise) -> Tensor:
        return sample_transitions(
            noise,
            self.steps,
            range(self.first_stochastic_step, self.steps - self.ignore_last),
            self.single_stochastic_step,
        )

    def kernel(self, x, velocity, log_std, time, next_time, stochastic):
        scale = sde_scale(time, 1 - 1 / self.steps, self.noise_level) * stochastic
        return sde_step(x, velocity, time, next_time, scale)


@dataclass(frozen=True)
class CPS(Flow):
    """CPS: fresh noise replaces a part of the predicted noise at every step but the last, which has none.

    Source: Coefficients-Preserving Sampling, 2025, arXiv:2509.05952.

    Args:
        steps: K, at least 2.
        noise_level: in (0, 1].
        single_stochastic_step: one transition of each row is stochastic, or all.
    """

    steps: int = 4
    noise_level: float = 0.5
    single_stochastic_step: bool = True

    def __post_init__(self) -> None:
        check_minimum("steps", self.steps, 2)
        check_interval("policy.chain", "(0, 1]", noise_level=self.noise_level)

    @property
    def max_stochastic_steps(self) -> int:
        return 1 if self.single_stochastic_step else self.steps - 1

    def stochastic_mask(self, noise: Noise) -> Tensor:
        return sample_transitions(noise, self.steps, range(self.steps - 1), self.single_stochastic_step)

    def kernel(self, x, velocity, log_std, time, next_time, stochastic):
        return cps_step(x, velocity, time, next_time, self.noise_level * stochastic)


@dataclass(frozen=True)
class FlowNoise(Flow):
    """Flow-Noise (ReinFlow): ODE steps with a bounded standard deviation that the network predicts; all are stochastic.

    Source: ReinFlow, 2025, arXiv:2505.22094, as Flow-Noise of pi_RL, section 4.1. Differs: the term log N(x_0; 0, I),
    which has no gradient, is left out.

    Args:
        steps: K.
        min_std: smallest standard deviation.
        max_std: largest.
        first_stochastic_step: earlier transitions are never stochastic, as in FlowSDE.
    """

    steps: int = 4
    min_std: float = 0.08
    max_std: float = 0.16
    first_stochastic_step: int = 0
    predicts_std = True

    def __post_init__(self) -> None:
        check_minimum("steps", self.steps, 1)
        if not 0 <= self.first_stochastic_step < self.steps:
            raise ValueError(
                f"policy.chain.first_stochastic_step={self.first_stochastic_step} leaves none of {self.steps} "
                "transitions to be stochastic"
            )
        check_interval("policy.chain", f"(0, {self.max_std})", min_std=self.min_std)

    def stochastic_mask(self, noise: Noise) -> Tensor:
        return sample_transitions(noise, self.steps, range(self.first_stochastic_step, self.steps), single=False)

    def kernel(self, x, velocity, log_std, time, next_time, stochastic):
        mean, _ = sde_step(x, velocity, time, next_time, torch.zeros_like(time))
        return mean, bounded_std(log_std, self.min_std, self.max_std) * stochastic
