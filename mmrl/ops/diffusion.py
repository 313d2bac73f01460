"""Denoising diffusion as a chain of Gaussian steps: level L (noise) down to level 0 (data).

x_l = sqrt(kept_l) a + sqrt(1 - kept_l) e, kept_0 = 1. A predicted noise names the action; a step mixes the two again.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor


def cosine_kept(levels: int, device: torch.device | None = None) -> Tensor:
    """[levels + 1] shares of the data's variance: kept_0 = 1, kept_l = prod_{j <= l} (1 - beta_j).

    beta_j = min(1 - f(j) / f(j - 1), 0.999), f(j) = cos^2((j / levels + 0.008) / 1.008 * pi / 2).
    Source: Improved Denoising Diffusion Probabilistic Models, 2021, equation 17, arXiv:2102.09672.
    """
    f = [math.cos((j / levels + 0.008) / 1.008 * math.pi / 2) ** 2 for j in range(levels + 1)]
    kept = [1.0]
    for before, here in pairwise(f):
        kept.append(kept[-1] * (1 - min(1 - here / before, 0.999)))
    return torch.tensor(kept, dtype=torch.float32, device=device)


def noised(action: Tensor, noise: Tensor, kept: Tensor) -> Tensor:
    """x = sqrt(kept) a + sqrt(1 - kept) e."""
    return kept.sqrt() * action + (1 - kept).sqrt() * noise


def named_action(x: Tensor, noise: Tensor, kept: Tensor, bound: float | None) -> tuple[Tensor, Tensor]:
    """The action that a predicted noise names, cut to [-bound, bound], and the noise that goes with it."""
    action = (x - (1 - kept).sqrt() * noise) / kept.sqrt()
    if bound is None:
        return action, noise
    action = action.clamp(-bound, bound)
    return action, (x - kept.sqrt() * action) / (1 - kept).sqrt()


def ddpm_step(x: Tensor, action: Tensor, kept: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of the posterior of the next level given x and the action.

    With alpha = kept / after: mean = sqrt(after) (1 - alpha) / (1 - kept) a + sqrt(alpha) (1 - after) / (1 - kept) x,
    variance = (1 - alpha) (1 - after) / (1 - kept).
    Source: Denoising Diffusion Probabilistic Models, 2020, equation 7, arXiv:2006.11239.
    """
    alpha = kept / after
    mean = after.sqrt() * (1 - alpha) / (1 - kept) * action + alpha.sqrt() * (1 - after) / (1 - kept) * x
    return mean, ((1 - alpha) * (1 - after) / (1 - kept)).sqrt()


def ddim_step(action: Tensor, noise: Tensor, kept: Tensor, after: Tensor, eta: Tensor | float) -> tuple[Tensor, Tensor]:
    """Mean and deviation of a step that needs no neighbouring levels; eta 0 is deterministic, 1 as noisy as DDPM.

    deviation = eta sqrt((1 - after) / (1 - kept) (1 - kept / after)),
    mean = sqrt(after) a + sqrt(1 - after - deviation^2) e.
    Source: Denoising Diffusion Implicit Models, 2020, equations 12 and 16, arXiv:2010.02502.
    """
    deviation = eta * ((1 - after) / (1 - kept) * (1 - kept / after)).sqrt()
    return after.sqrt() * action + (1 - after - deviation.square()).clamp(min=0).sqrt() * noise, deviation
