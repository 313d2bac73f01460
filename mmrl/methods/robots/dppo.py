"""DPPO: PPO over denoising chains with a discount factor and clip range per denoising step.

DPPO: Diffusion Policy Policy Optimization, 2024, section 4.3 and appendix C, arXiv:2409.00588.

- the clipped surrogate of a chain: `mmrl.objectives.policy_chain.ChainSurrogate`, which other papers share
- its discount and clip range by denoising step: `DenoisingSurrogate`
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.objectives.policy_chain import ChainSurrogate


@dataclass(frozen=True)
class DenoisingSurrogate(ChainSurrogate):
    """DPPO's surrogate: transitions near the noise have smaller advantages and a tighter clip range.

    With i = 0 .. K - 1 the transition's number and s = i / (K - 1): the advantage is times
    gamma_denoising^(K - 1 - i), both bounds are clip_base + (bound - clip_base) (e^(3 s) - 1) / (e^3 - 1).
    Source: Diffusion Policy Policy Optimization, 2024, section 4.3 and appendix C, arXiv:2409.00588.

    Args:
        steps: K. chunk, join, reduction, clip_low, clip_high, clip_dual, old: as of ChainSurrogate.
        gamma_denoising: 1 counts all transitions the same.
        clip_base: bound of the first transition; none for the same bound everywhere.
    """

    steps: int = 10
    gamma_denoising: float = 0.99
    clip_base: float | None = 0.001

    def _number(self, batch: Batch) -> Tensor:
        """[T] number of the transition that each choice belongs to; block 0 is the noise."""
        choices = torch.arange(batch["action_mask"].shape[1], device=batch["action_mask"].device)
        return (choices // self.chunk - 1).clamp(min=0)

    def advantages(self, batch: Batch) -> Tensor:
        return super().advantages(batch) * self.gamma_denoising ** (self.steps - 1 - self._number(batch))

    def _bounds(self, batch: Batch) -> tuple[Tensor | float, Tensor | float]:
        if self.clip_base is None:
            return self.clip_low, self.clip_high
        share = self._number(batch) / max(self.steps - 1, 1)
        rise = ((3 * share).exp() - 1) / (math.exp(3) - 1)
        return self.clip_base + (self.clip_low - self.clip_base) * rise, self.clip_base + (
            self.clip_high - self.clip_base
        ) * rise
