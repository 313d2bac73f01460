"""Gradients of differentially private training: the gradient of each example is clipped, and the sum gets noise.

Source: Deep Learning with Differential Privacy, 2016, algorithm 1, arXiv:1607.00133.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def clip_example(gradient: Sequence[Tensor], clip_norm: float) -> tuple[list[Tensor], Tensor]:
    """g * min(1, C / ||g||), with the norm over all parameters together; a zero gradient stays zero.

    Args:
        gradient: of one example, one tensor per parameter.
        clip_norm: C, the largest norm.

    Returns:
        The clipped gradient in float32, and the norm before.
    """
    wide = [part.float() for part in gradient]
    norm = torch.stack([part.norm() for part in wide]).norm()
    scale = clip_norm / norm.clamp(min=clip_norm)
    return [part * scale for part in wide], norm


def noisy_mean(total: Tensor, std: float, size: float, generator: torch.Generator) -> Tensor:
    """(sum of clipped gradients + N(0, std^2)) / expected batch size; the noise is drawn on the CPU."""
    noise = torch.randn(total.shape, generator=generator, dtype=torch.float32) * std
    return (total + noise.to(total.device)) / size
