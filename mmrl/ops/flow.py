"""Flow matching as a chain of Gaussian steps: time runs from 1 (noise) to 0 (data), v = noise - data.

x_t = (1 - t) a + t e is a straight line between an action a and a noise e, so that a velocity v at x_t names both
ends. A step to an earlier time mixes the two named ends again; how much fresh noise replaces the old makes the kinds.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def time_grid(steps: int, device: torch.device | None = None) -> Tensor:
    """[steps + 1] times t_i = 1 - i / steps. Sampling, scoring again and training of one head all read this."""
    return 1 - torch.arange(steps + 1, dtype=torch.float32, device=device) / steps


def between(action: Tensor, noise: Tensor, time: Tensor) -> Tensor:
    """x_t = (1 - t) a + t e."""
    return (1 - time) * action + time * noise


def ends(x: Tensor, velocity: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    """The action x - t v and the noise x + (1 - t) v that the velocity at x names."""
    return x - time * velocity, x + (1 - time) * velocity


def score(x: Tensor, velocity: Tensor, time: Tensor) -> Tensor:
    """Gradient of the log-density at time t: -e / t with e the noise that the velocity names."""
    return -ends(x, velocity, time)[1] / time


def sde_scale(time: Tensor, first: float, level: Tensor | float) -> Tensor:
    """Diffusion of Flow-SDE: level sqrt(t / (1 - t)); at t = 1 the denominator is 1 - `first`, the next time.

    Source: pi_RL, 2025, section 4.2, arXiv:2510.25889; the value at t = 1 as in its code.
    """
    return level * (time / (1 - torch.where(time < 1, time, first))).sqrt()


def sde_step(x: Tensor, velocity: Tensor, time: Tensor, after: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of one Euler-Maruyama step from `time` to `after` < time.

    dx = [v + s^2 / (2 t) (x + (1 - t) v)] dt + s dw has the marginals of dx = v dt for every s. In terms of the ends
    the mean is (1 - t') a + (t' - s^2 d / (2 t)) e with t' = after, d = t - t', the deviation s sqrt(d). s = 0 is the
    step of the ODE.
    """
    action, noise = ends(x, velocity, time)
    d = time - after
    return (1 - after) * action + (after - scale.square() * d / (2 * time)) * noise, scale * d.sqrt()


def mean_velocity(velocity: Tensor, rate: Tensor, time: Tensor, until: Tensor) -> Tensor:
    """Target of an average velocity over [r, t]: v - (t - r) du/dt, with the rate du/dt along x' = v, t' = 1, r' = 0.

    (t - r) u(x_t, r, t) = int_r^t v ds, differentiated by t. A step x_t - (t - r) u is then exact however long it is.
    Source: Mean Flows for One-step Generative Modeling, 2025, equations 6 and 10, arXiv:2505.13447.
    """
    return velocity - (time - until) * rate


def cps_step(x: Tensor, velocity: Tensor, time: Tensor, after: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of a step that keeps the coefficients: (1 - t') a + t' (cos(pi l / 2) e + sin(pi l / 2) z).

    Fresh noise z takes the place of a part of the predicted noise e; level l in [0, 1], 0 is the step of the ODE. The
    last step, t' = 0, has no noise. Marginals are only near those of the ODE, since e has less than unit variance.
    Source: Coefficients-Preserving Sampling, 2025, arXiv:2509.05952.
    """
    action, noise = ends(x, velocity, time)
    angle = math.pi / 2 * level
    return (1 - after) * action + after * angle.cos() * noise, after * angle.sin()


def bounded_deviation(raw: Tensor, low: float, high: float) -> Tensor:
    """Standard deviation between low and high of an unbounded number: log-variance linear in tanh(raw).

    Source: ReinFlow, 2025, section 4, arXiv:2505.22094.
    """
    share = (raw.tanh() + 1) / 2
    return (math.log(low) + share * (math.log(high) - math.log(low))).exp()
