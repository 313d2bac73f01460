"""GMPO: the geometric mean of a completion's importance ratios, each clipped before the mean.

Zhao et al., "Geometric-Mean Policy Optimization", 2025, arXiv:2507.20673; released code: callsys/GMPO,
train_zero_math_gmpo.py.

GRPO maximises the arithmetic mean of A rho_t over the tokens of a completion, rho_t = pi(o_t) / pi_old(o_t). GMPO
maximises their geometric mean, with the sign of A put back:

    J = sgn(A) (prod_t |min(A rho_t, A clip(rho_t, e^-clip_low, e^clip_high))|)^(1/|o|)

A is that of the whole completion, so |A| leaves the product. The minimum takes the smaller ratio where A > 0 and the
larger one where A < 0: only the bound that a gain would cross holds. With d_t = log rho_t:

    J = A exp(1/|o| sum_t c_t),   c_t = min(d_t, clip_high) where A > 0,   max(d_t, -clip_low) where A < 0

A choice beyond its bound has no gradient; the others of the row keep dJ/dd_t = A ratio / |o|. GSPO instead clips the
mean of the d_t, which cuts all choices of a row or none.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_positive
from mmrl.core.types import PolicyOutput
from mmrl.objectives.policy import PolicyGradientTerm
from mmrl.ops.masked import masked_mean, zero_outside
from mmrl.ops.policy_gradient import divergence, log_ratio


def clip_log_ratio(
    d: Tensor,  # [N, T] nats
    advantages: Tensor,  # [N, T]
    clip_low: float,
    clip_high: float,
) -> Tensor:  # [N, T] nats
    """Clip where a gain would be counted: min(d, clip_high) where A >= 0, max(d, -clip_low) where A < 0."""
    return torch.where(advantages < 0, d.clamp(min=-clip_low), d.clamp(max=clip_high))


def geometric_mean_ratio(
    clipped: Tensor,  # [N, T] nats
    mask: Tensor,  # [N, T] bool
) -> Tensor:  # [N, T], the same for all choices of a row
    """exp(1/|o| sum_t c_t), the geometric mean of a row's clipped ratios; 1 in a row without a choice."""
    return masked_mean(clipped, mask, dim=1).exp()[:, None].expand_as(clipped)


@dataclass(frozen=True)
class GeometricMeanSurrogate(PolicyGradientTerm):
    """Surrogate -A (prod_t clipped ratio_t)^(1/|o|), given to each choice of the row: GMPO, clipped per choice.

    Its row counts once under the weighting SequenceMean. The clip of a choice takes the sign of its own advantage;
    those of `GroupAdvantage` are equal in a row, as in the paper. Source: Geometric-Mean Policy Optimization, 2025,
    arXiv:2507.20673.

    Args:
        clip_low: in nats, the log-ratio of a choice is at least -clip_low where the advantage is negative.
        clip_high: in nats, and at most clip_high where it is positive.
    """

    clip_low: float = 0.4
    clip_high: float = 0.4

    def __post_init__(self) -> None:
        check_positive("geometric_mean_surrogate", clip_low=self.clip_low, clip_high=self.clip_high)

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return -self.advantages(batch) * self._ratio(out, batch)[2]

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """ratio: of the row; clip_fraction: choices without gradient; kl: KL(old || new) by k3, nats per choice."""
        d, clipped, ratio = self._ratio(out, batch)
        cut = (d != clipped) & (self.advantages(batch) != 0)
        kl = divergence(torch.zeros_like(d), d, "k3")
        return {"ratio": ratio, "clip_fraction": cut.to(d.dtype), "kl": kl}

    def _ratio(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Log-ratios d, clipped log-ratios c, and the row's ratio, each [N, T]."""
        mask = batch["action_mask"]
        d = log_ratio(out.logprobs, batch[self.old], mask)
        clipped = zero_outside(clip_log_ratio(d, self.advantages(batch), self.clip_low, self.clip_high), mask)
        return d, clipped, geometric_mean_ratio(clipped, mask)
