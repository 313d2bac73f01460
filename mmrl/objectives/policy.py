"""Policy-gradient losses: REINFORCE, CISPO, SAPO, and the clipped surrogate of PPO and GSPO."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least, check_fraction, check_positive
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside
from mmrl.ops.policy_gradient import (
    ImportanceSamplingLevel,
    cispo,
    clipped_surrogate,
    divergence,
    is_clipped,
    log_ratio,
    sapo,
)


@dataclass(frozen=True)
class PolicyGradientTerm(Term):
    """Base class of losses of each choice that are made of its advantage and its importance ratio.

    Args:
        old: column of the log-probs that the ratio is taken against: "behavior_logprobs" as sampled, or "old_logprobs".
    """

    old: str = field(default="behavior_logprobs", kw_only=True)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "advantages", self.old})

    def ratio(self, out: PolicyOutput, batch: Batch, level: ImportanceSamplingLevel = "token") -> Tensor:
        """Importance ratio pi / pi_old [N, T] with gradient, at the level of `log_ratio`; 1 outside the mask."""
        return log_ratio(out.logprobs, batch[self.old], batch["action_mask"], level).exp()

    def advantages(self, batch: Batch) -> Tensor:
        """Advantages [N, T], 0 outside the mask."""
        return zero_outside(batch["advantages"], batch["action_mask"])


@dataclass(frozen=True)
class PolicyGradient(Term):
    """REINFORCE policy-gradient loss of each choice: -A * logprob, times an importance weight; it has no ratio.

    Args:
        importance_weights: column of weights for choices that other weights sampled; none means on policy.
    """

    importance_weights: str | None = None

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "advantages", *_column_set(self.importance_weights)})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = batch["action_mask"]
        loss = -zero_outside(batch["advantages"], mask) * zero_outside(out.logprobs, mask)
        return _apply_weights(loss, batch, self.importance_weights)


@dataclass(frozen=True)
class ClippedSurrogate(PolicyGradientTerm):
    """Clipped surrogate of PPO with importance ratios per choice, per sequence (GSPO) or per joint action.

    The clip range stands in for a trust region. GSPO is importance_sampling_level="sequence" with the weighting
    SequenceMean: loss = max(-A ratio, -A clip(ratio, 1 - clip_low, 1 + clip_high)), at most -A clip_dual where
    A < 0; times the importance weights.

    With old="old_logprobs" the clip range is around the policy before the update, whoever sampled, and the importance
    weights correct for the behaviour policy (decoupled PPO). Source: Proximal Policy Optimization Algorithms, 2017,
    equation 7, arXiv:1707.06347; sequence: Group Sequence Policy Optimization, 2025, arXiv:2507.18071; decoupled: Batch
    size-invariance for policy optimization, 2021, arXiv:2110.00641.

    Args:
        clip_low: the ratio is clipped at 1 - clip_low.
        clip_high: and at 1 + clip_high.
        clip_dual: upper bound of the ratio where the advantage is negative, > 1 + clip_high; none for no bound.
        importance_sampling_level: "token", a ratio per choice; "sequence", the geometric mean of a row's ratios (GSPO);
            "joint", their product, the ratio of the row as one action; use it with weights that count rows alike.
        importance_weights: column of weights that multiply the loss of each choice; none for 1.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    clip_dual: float | None = None
    importance_sampling_level: ImportanceSamplingLevel = "token"
    importance_weights: str | None = None

    def __post_init__(self) -> None:
        check_fraction("clipped_surrogate", clip_low=self.clip_low)
        check_at_least(0, "clipped_surrogate", clip_high=self.clip_high)
        if self.clip_dual is not None and self.clip_dual <= 1 + self.clip_high:
            raise ValueError(
                f"clipped_surrogate.clip_dual must be > 1 + clip_high = {1 + self.clip_high}, got {self.clip_dual}"
            )

    def reads(self) -> frozenset[str]:
        return super().reads() | _column_set(self.importance_weights)

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        loss = clipped_surrogate(*self._pair(out, batch), self.clip_low, self.clip_high, self.clip_dual)
        return _apply_weights(loss, batch, self.importance_weights)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """ratio; clip_fraction: choices whose gradient is cut; kl: KL(old || new) by k3, nats per choice."""
        return self._metrics(*self._pair(out, batch), out, batch)

    def loss_and_metrics(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        ratio, advantages = self._pair(out, batch)
        loss = clipped_surrogate(ratio, advantages, self.clip_low, self.clip_high, self.clip_dual)
        loss = _apply_weights(loss, batch, self.importance_weights)
        with torch.no_grad():
            return loss, self._metrics(ratio.detach(), advantages, out, batch)

    def _metrics(self, ratio: Tensor, advantages: Tensor, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        mask = batch["action_mask"]
        old, new = zero_outside(batch[self.old], mask), zero_outside(out.logprobs, mask)
        return {
            "ratio": ratio,
            "clip_fraction": is_clipped(ratio, advantages, self.clip_low, self.clip_high, self.clip_dual).to(
                ratio.dtype
            ),
            "kl": divergence(old, new, "k3"),
        }

    def _pair(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, Tensor]:
        return self.ratio(out, batch, self.importance_sampling_level), self.advantages(batch)


@dataclass(frozen=True)
class CISPO(PolicyGradientTerm):
    """CISPO policy-gradient loss: -A * logprob times the clipped importance weight, which has no gradient.

    loss = -sg(clip(ratio, 1 - clip_low, 1 + clip_high)) A logprob. Unlike in `ClippedSurrogate` no choice loses its
    gradient by clipping. Source: MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention, 2025,
    equations 4 and 5, arXiv:2506.13585.

    Args:
        clip_high: the importance weight is at most 1 + clip_high.
        clip_low: and at least 1 - clip_low; none for no lower bound, as in the paper.
    """

    clip_high: float = 4.0
    clip_low: float | None = None

    def __post_init__(self) -> None:
        check_fraction("cispo", clip_low=self.clip_low or 0)
        check_at_least(0, "cispo", clip_high=self.clip_high)

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        logprobs = zero_outside(out.logprobs, batch["action_mask"])
        return cispo(logprobs, self.ratio(out, batch), self.advantages(batch), self.clip_low, self.clip_high)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """ratio; clip_fraction: choices whose importance weight is clipped."""
        ratio = self.ratio(out, batch)
        low = 0.0 if self.clip_low is None else 1 - self.clip_low
        return {"ratio": ratio, "clip_fraction": ((ratio < low) | (ratio > 1 + self.clip_high)).to(ratio.dtype)}


@dataclass(frozen=True)
class SAPO(PolicyGradientTerm):
    """SAPO policy loss: the ratio passes a sigmoid gate, so that no choice loses its gradient at a bound.

    loss = -A (4 / tau) sigmoid(tau (ratio - 1)), tau = temperature_pos where A > 0, else temperature_neg. Source: Soft
    Adaptive Policy Optimization, 2025, the soft gate, arXiv:2511.20347.

    Args:
        temperature_pos: of the gate where the advantage is positive; a larger one closes it faster.
        temperature_neg: of the gate elsewhere; larger than temperature_pos, since gradients of negative advantages
            raise many other tokens.
    """

    temperature_pos: float = 1.0
    temperature_neg: float = 1.05

    def __post_init__(self) -> None:
        check_positive("sapo", temperature_pos=self.temperature_pos, temperature_neg=self.temperature_neg)

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return sapo(self.ratio(out, batch), self.advantages(batch), self.temperature_pos, self.temperature_neg)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """ratio."""
        return {"ratio": self.ratio(out, batch)}


def _column_set(column: str | None) -> set[str]:
    return set() if column is None else {column}


def _apply_weights(loss: Tensor, batch: Batch, column: str | None) -> Tensor:
    return loss if column is None else loss * zero_outside(batch[column], batch["action_mask"])
