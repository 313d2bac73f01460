"""Denoising losses for cloning with continuous heads: flow matching, epsilon prediction, regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside


@dataclass(frozen=True)
class DenoisingLoss(Term):
    """Denoising loss of a demonstrated chunk, per control step, averaged over dimensions: |prediction - target|^power.

    Flow heads: |v - (noise - chunk)|^2 (flow matching); diffusion heads: |e - noise|^2 (epsilon prediction); a Gaussian
    chunk: |mean - chunk|^2. Source: Flow Matching for Generative Modeling, 2022, equation 23, arXiv:2210.02747.

    Args:
        power: 2 for the squared error, 1 for the absolute one.
    """

    power: Literal[1, 2] = 2

    def __post_init__(self) -> None:
        if self.power not in (1, 2):
            raise ValueError(f"denoising_loss.power must be 1 or 2, got {self.power}")

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "is_demo"})

    def needs(self) -> frozenset[str]:
        return frozenset({"denoising_error"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        if "denoising_error" not in out.extra:
            if batch["is_demo"].any():
                raise ValueError(
                    "denoising_loss: the policy gave no denoising error for the demonstrations of this batch"
                )
            return torch.zeros_like(batch["action_mask"], dtype=out.logprobs.dtype)
        error = out.extra["denoising_error"]  # [N, T, A, L]
        error = error.square() if self.power == 2 else error.abs()
        return zero_outside(error.mean(dim=(2, 3)), batch["action_mask"] & batch["is_demo"][:, None])


@dataclass(frozen=True)
class LatentKL(Term):
    """KL divergence of a demonstration's latent from its prior, per row in nats: the regulariser of ACT's autoencoder.

    Source: Zhao et al., "Learning Fine-Grained Bimanual Manipulation with Low-Cost Hardware", 2023, algorithm 1,
    arXiv:2304.13705 (coefficient 10).
    """

    def reads(self) -> frozenset[str]:
        return frozenset({"is_demo"})

    def needs(self) -> frozenset[str]:
        return frozenset({"latent_kl"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        if "latent_kl" not in out.extra:
            return torch.zeros_like(out.logprobs[:, 0])
        return torch.where(batch["is_demo"], out.extra["latent_kl"], 0.0)
