"""Denoising diffusion (DDPM, DDIM) as a chain of Gaussian steps: level L (noise) down to level 0 (data).

x_l = sqrt(alpha_cumprod_l) x_0 + sqrt(1 - alpha_cumprod_l) epsilon, alpha_cumprod_0 = 1.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor


def cosine_alphas_cumprod(levels: int, device: torch.device | None = None) -> Tensor:
    """Cumulative products of alphas [levels + 1] of the cosine schedule: prod_{j <= l} (1 - beta_j), 1 at level 0.

    beta_j = min(1 - f(j) / f(j - 1), 0.999), f(j) = cos^2((j / levels + 0.008) / 1.008 * pi / 2).
    Source: Improved Denoising Diffusion Probabilistic Models, 2021, equation 17, arXiv:2102.09672.
    """
    f = [math.cos((j / levels + 0.008) / 1.008 * math.pi / 2) ** 2 for j in range(levels + 1)]
    alphas_cumprod = [1.0]
    for before, here in pairwise(f):
        alphas_cumprod.append(alphas_cumprod[-1] * (1 - min(1 - here / before, 0.999)))
    return torch.tensor(alphas_cumprod, dtype=torch.float32, device=device)


def add_noise(x0: Tensor, epsilon: Tensor, alpha_cumprod: Tensor) -> Tensor:
    """Sample of the forward process: x = sqrt(alpha_cumprod) x_0 + sqrt(1 - alpha_cumprod) epsilon."""
    return alpha_cumprod.sqrt() * x0 + (1 - alpha_cumprod).sqrt() * epsilon


def predict_x0(x: Tensor, epsilon: Tensor, alpha_cumprod: Tensor, bound: float | None) -> tuple[Tensor, Tensor]:
    """Predicted x_0 of a predicted epsilon, clipped to [-bound, bound], and the epsilon that fits it."""
    x0 = (x - (1 - alpha_cumprod).sqrt() * epsilon) / alpha_cumprod.sqrt()
    if bound is None:
        return x0, epsilon
    x0 = x0.clamp(-bound, bound)
    return x0, (x - alpha_cumprod.sqrt() * x0) / (1 - alpha_cumprod).sqrt()


def ddpm_step(x: Tensor, x0: Tensor, alpha_cumprod: Tensor, alpha_cumprod_prev: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the DDPM posterior of the next level given x and x_0.

    With alpha = a / b, a = alpha_cumprod of x and b = alpha_cumprod_prev of the next level:
    mean = sqrt(b) (1 - alpha) / (1 - a) x_0 + sqrt(alpha) (1 - b) / (1 - a) x,
    variance = (1 - alpha) (1 - b) / (1 - a).
    Source: Denoising Diffusion Probabilistic Models, 2020, equation 7, arXiv:2006.11239.
    """
    alpha = alpha_cumprod / alpha_cumprod_prev
    mean = (
        alpha_cumprod_prev.sqrt() * (1 - alpha) / (1 - alpha_cumprod) * x0
        + alpha.sqrt() * (1 - alpha_cumprod_prev) / (1 - alpha_cumprod) * x
    )
    return mean, ((1 - alpha) * (1 - alpha_cumprod_prev) / (1 - alpha_cumprod)).sqrt()


def ddim_step(
    x0: Tensor, epsilon: Tensor, alpha_cumprod: Tensor, alpha_cumprod_prev: Tensor, eta: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of a DDIM step; eta 0 is deterministic, 1 as noisy as DDPM.

    std = eta sqrt((1 - b) / (1 - a) (1 - a / b)), mean = sqrt(b) x_0 + sqrt(1 - b - std^2) epsilon, with a and b as in
    `ddpm_step`. Source: Denoising Diffusion Implicit Models, 2020, equations 12 and 16, arXiv:2010.02502.
    """
    std = eta * ((1 - alpha_cumprod_prev) / (1 - alpha_cumprod) * (1 - alpha_cumprod / alpha_cumprod_prev)).sqrt()
    return alpha_cumprod_prev.sqrt() * x0 + (1 - alpha_cumprod_prev - std.square()).clamp(min=0).sqrt() * epsilon, std
