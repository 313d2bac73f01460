"""Flow matching heads: the network answers a velocity; the kinds differ in where fresh noise enters."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.ops.flow import between, bounded_deviation, cps_step, sde_scale, sde_step, time_grid
from mmrl.policies.chains.base import Chain, Lesson, Step, at_least, column, one_of
from mmrl.rng import Noise


class Flow(Chain):
    """K equal steps from time 1 (noise) to time 0 (chunk).

    Training places: t = 0.001 + 0.999 b with b ~ Beta(1.5, 1), so b = u^(2/3); target noise - chunk.
    Source: pi0: A Vision-Language-Action Flow Model, 2024, section IV and appendix B, arXiv:2410.24164, with time
    running the other way (its openpi code).
    """

    answer = "velocity"

    def time(self, index: Tensor) -> Tensor:
        return time_grid(self.steps, index.device)[index]

    def lesson(self, chunk: Tensor, noise: Noise) -> Lesson:
        time = 0.001 + 0.999 * noise.uniform().to(chunk.device) ** (2 / 3)
        end = noise.normal(*chunk.shape[1:]).to(chunk.device)
        return Lesson(between(chunk, end, column(time)), time, end - chunk)

    def step(self, x: Tensor, index: Tensor, answer: Tensor, spread: Tensor | None, open: Tensor) -> Step:
        time, after = column(self.time(index)), column(self.time(index + 1))
        mean, deviation = self.kernel(x, answer, spread, time, after, column(open))
        return Step(mean, deviation.expand_as(mean))

    @abstractmethod
    def kernel(
        self, x: Tensor, velocity: Tensor, spread: Tensor | None, time: Tensor, after: Tensor, open: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mean and deviation of x at `after`; the deviation is 0 where `open` is False."""


@dataclass(frozen=True)
class FlowODE(Flow):
    """No transition is drawn: for cloning and for evaluation. Nothing can be learnt from rewards.

    Args:
        steps: K.
    """

    steps: int = 4

    def __post_init__(self) -> None:
        at_least("steps", self.steps, 1)

    def stochastic_mask(self, noise: Noise) -> Tensor:
        return torch.zeros(len(noise), self.steps, dtype=torch.bool)

    def kernel(self, x, velocity, spread, time, after, open):
        return sde_step(x, velocity, time, after, torch.zeros_like(time))


@dataclass(frozen=True)
class FlowSDE(Flow):
    """Transitions follow a stochastic differential equation with the marginals of the flow.

    Source: pi_RL, 2025, sections 4.2 and 4.3, arXiv:2510.25889. Differs: each row draws the number of its open
    transition from its own stream; the released code draws one for the whole batch.

    Args:
        steps: K.
        noise: level a; the first transition has exactly this standard deviation.
        hybrid: one transition of each row is open, drawn evenly, and the others follow the ODE, so that learning runs
            the network once per row; otherwise all are open.
        first: transitions before this number are never open. Where all noise leads to nearly the same action, as
            after cloning a deterministic expert, what early transitions draw is undone by later ones: their share of
            the gradient is noise. Source: MixGRPO, 2025, section 3.2, arXiv:2507.21802 (a window, which it moves).
        ignore_last: the last transition is never open.
    """

    steps: int = 4
    noise: float = 0.5
    hybrid: bool = True
    first: int = 0
    ignore_last: bool = False

    def __post_init__(self) -> None:
        at_least("steps", self.steps, 2)
        if not 0 <= self.first < self.steps - self.ignore_last:
            raise ValueError(f"policy.chain.first={self.first} leaves none of {self.steps} transitions to be open")
        if self.noise <= 0:
            raise ValueError(f"policy.chain.noise must be > 0, got {self.noise}; without noise take FlowODE")

    @property
    def draws(self) -> int:
        return 1 if self.hybrid else self.steps

    def stochastic_mask(self, noise: Noise) -> Tensor:
        return one_of(noise, self.steps, range(self.first, self.steps - self.ignore_last), self.hybrid)

    def kernel(self, x, velocity, spread, time, after, open):
        scale = sde_scale(time, 1 - 1 / self.steps, self.noise) * open
        return sde_step(x, velocity, time, after, scale)


@dataclass(frozen=True)
class CPS(Flow):
    """Fresh noise replaces a part of the predicted one at every step but the last, which has none.

    Source: Coefficients-Preserving Sampling, 2025, arXiv:2509.05952.

    Args:
        steps: K, at least 2.
        noise: level in (0, 1].
        hybrid: one transition of each row is open, or all.
    """

    steps: int = 4
    noise: float = 0.5
    hybrid: bool = True

    def __post_init__(self) -> None:
        at_least("steps", self.steps, 2)
        if not 0 < self.noise <= 1:
            raise ValueError(f"policy.chain.noise must be in (0, 1], got {self.noise}")

    @property
    def draws(self) -> int:
        return 1 if self.hybrid else self.steps - 1

    def stochastic_mask(self, noise: Noise) -> Tensor:
        return one_of(noise, self.steps, range(self.steps - 1), self.hybrid)

    def kernel(self, x, velocity, spread, time, after, open):
        return cps_step(x, velocity, time, after, self.noise * open)


@dataclass(frozen=True)
class FlowNoise(Flow):
    """Steps of the ODE with a standard deviation that the network learns, between two bounds; all are open.

    Source: ReinFlow, 2025, arXiv:2505.22094, as Flow-Noise of pi_RL, section 4.1. Differs: the term log N(x_0; 0, I),
    which has no gradient, is left out.

    Args:
        steps: K.
        low: smallest standard deviation.
        high: largest.
        first: transitions before this number are never open, as of FlowSDE.
    """

    steps: int = 4
    low: float = 0.08
    high: float = 0.16
    first: int = 0
    spread = True

    def __post_init__(self) -> None:
        at_least("steps", self.steps, 1)
        if not 0 <= self.first < self.steps:
            raise ValueError(f"policy.chain.first={self.first} leaves none of {self.steps} transitions to be open")
        if not 0 < self.low < self.high:
            raise ValueError(f"policy.chain needs 0 < low < high, got {self.low} and {self.high}")

    def stochastic_mask(self, noise: Noise) -> Tensor:
        return one_of(noise, self.steps, range(self.first, self.steps), hybrid=False)

    def kernel(self, x, velocity, spread, time, after, open):
        mean, _ = sde_step(x, velocity, time, after, torch.zeros_like(time))
        return mean, bounded_deviation(spread, self.low, self.high) * open
