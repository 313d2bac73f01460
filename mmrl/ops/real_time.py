"""Real-time chunking: how strongly a chunk is held to the one before it."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def soft_mask(chunk: int, delay: int, execute: int) -> Tensor:
    """Weights [chunk] by which a chunk is held to the one before it, shifted by what was executed of that.

    1 for the `delay` control steps that are played before the new chunk is there, then c (e^c - 1) / (e - 1) with c =
    (chunk - execute - i) / (chunk - execute - delay + 1), and 0 for the last `execute`, of which the old one has none.
    Source: Black et al., "Real-Time Execution of Action Chunking Flow Policies", 2025, equation 5, arXiv:2506.07339.
    """
    steps = torch.arange(chunk)
    c = (chunk - execute - steps) / (chunk - execute - delay + 1)
    fading = c * torch.expm1(c) / (math.e - 1)
    return torch.where(steps < delay, 1.0, torch.where(steps < chunk - execute, fading, 0.0))


def guidance_weight(time: Tensor, limit: float) -> Tensor:
    """Factor of the guidance at times from 1 (noise) to 0 (chunk): min(limit, (t^2 + (1 - t)^2) / (t (1 - t))).

    Source: Black et al., 2025, equations 2 and 4, arXiv:2506.07339, with time running the other way.
    """
    return ((time**2 + (1 - time) ** 2) / (time * (1 - time))).clamp(max=limit)
