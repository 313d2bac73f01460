"""Embedding of the denoising time, as pi0 and the models after it have it."""

from __future__ import annotations

import torch
from torch import Tensor


def embed_time(time: Tensor, width: int, min_period: float, max_period: float) -> Tensor:
    """Compute sines and cosines [M, width] of times [M]; periods grow geometrically. float64."""
    fraction = torch.linspace(0.0, 1.0, width // 2, dtype=torch.float64, device=time.device)
    period = min_period * (max_period / min_period) ** fraction
    angle = time.double()[:, None] * (2 * torch.pi / period)
    return torch.cat([angle.sin(), angle.cos()], dim=1)
