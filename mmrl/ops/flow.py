"""Flow matching as a chain of Gaussian steps: time runs from 1 (noise) to 0 (data), v = noise - data.

x_t = (1 - t) a + t e is a straight line between an action a and a noise e, so that a velocity v at x_t determines both
endpoints. A step to an earlier time interpolates between the two again; samplers differ in how much of the noise they
replace by fresh noise.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def time_grid(steps: int, device: torch.device | None = None) -> Tensor:
    """Times [steps + 1] of the sampler, t_i = 1 - i / steps; sampling, scoring and training of one head share them."""
    return 1 - torch.arange(steps + 1, dtype=torch.float32, device=device) / steps


def interpolate(action: Tensor, noise: Tensor, time: Tensor) -> Tensor:
    """Interpolate linearly: x_t = (1 - t) a + t e."""
    return (1 - time) * action + time * noise


def endpoints(x: Tensor, velocity: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    """Endpoints of the line through x with this velocity: the action x - t v and the noise x + (1 - t) v."""
    return x - time * velocity, x + (1 - time) * velocity


def score(x: Tensor, velocity: Tensor, time: Tensor) -> Tensor:
    """Score function at time t, the gradient of the log-density: -e / t with e the predicted noise."""
    return -endpoints(x, velocity, time)[1] / time


def sde_scale(time: Tensor, second_time: float, noise_level: Tensor | float) -> Tensor:
    """Diffusion coefficient of Flow-SDE: noise_level sqrt(t / (1 - t)); at t = 1 the denominator is 1 - `second_time`.

    Source: pi_RL, 2025, section 4.2, arXiv:2510.25889; the value at t = 1 as in its code.
    """
    return noise_level * (time / (1 - torch.where(time < 1, time, second_time))).sqrt()


def sde_step(x: Tensor, velocity: Tensor, time: Tensor, next_time: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of one Euler-Maruyama step from `time` to `next_time` < time.

    dx = [v + s^2 / (2 t) (x + (1 - t) v)] dt + s dw has the marginals of dx = v dt for every s. In terms of the
    endpoints the mean is (1 - t') a + (t' - s^2 d / (2 t)) e with t' = next_time, d = t - t', the std s sqrt(d).
    s = 0 is the step of the ODE.
    """
    action, noise = endpoints(x, velocity, time)
    d = time - next_time
    return (1 - next_time) * action + (next_time - scale.square() * d / (2 * time)) * noise, scale * d.sqrt()


def mean_velocity(velocity: Tensor, du_dt: Tensor, time: Tensor, end_time: Tensor) -> Tensor:
    """Target of an average velocity over [r, t]: v - (t - r) du/dt, du_dt the derivative along x' = v, t' = 1, r' = 0.

    (t - r) u(x_t, r, t) = int_r^t v ds, differentiated by t. A step x_t - (t - r) u is then exact however long it is.
    Source: Mean Flows for One-step Generative Modeling, 2025, equations 6 and 10, arXiv:2505.13447.
    """
    return velocity - (time - end_time) * du_dt


def cps_step(
    x: Tensor, velocity: Tensor, time: Tensor, next_time: Tensor, noise_level: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and std of a CPS step: (1 - t') a + t' (cos(pi l / 2) e + sin(pi l / 2) z).

    Fresh noise z takes the place of a part of the predicted noise e; l is the noise level in [0, 1], 0 for the ODE. The
    last step, t' = 0, has no noise. Marginals are only near those of the ODE, since e has less than unit variance.
    Source: Coefficients-Preserving Sampling, 2025, arXiv:2509.05952.
    """
    action, noise = endpoints(x, velocity, time)
    angle = math.pi / 2 * noise_level
    return (1 - next_time) * action + next_time * angle.cos() * noise, next_time * angle.sin()


def bounded_std(raw: Tensor, min_std: float, max_std: float) -> Tensor:
    """Bounded standard deviation in [min_std, max_std] from an unbounded number: log-variance linear in tanh(raw).

    Source: ReinFlow, 2025, section 4, arXiv:2505.22094.
    """
    share = (raw.tanh() + 1) / 2
    return (math.log(min_std) + share * (math.log(max_std) - math.log(min_std))).exp()
