"""Terms that make choices with a positive advantage more likely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mmrl.batch import Batch
from mmrl.objectives.objective import Term
from mmrl.ops.divergence import divergence
from mmrl.ops.masked import zero_outside
from mmrl.ops.ratio import log_ratio
from mmrl.ops.surrogate import clipped, clipped_surrogate
from mmrl.types import PolicyOutput


@dataclass(frozen=True)
class PolicyGradient(Term):
    """Score-function loss of each choice: -A * logprob, times its correction. There is no ratio of its own.

    Args:
        correction: column of weights for choices that other weights sampled; none means on policy.
    """

    correction: str | None = None

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"mask", "advantages", *_named(self.correction)})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = batch["mask"]
        loss = -zero_outside(batch["advantages"], mask) * zero_outside(out.logprobs, mask)
        return _corrected(loss, batch, self.correction)


@dataclass(frozen=True)
class ClippedSurrogate(Term):
    """Gain of the new policy over the one that sampled, not counted beyond the trust interval.

    loss = max(-A ratio, -A clip(ratio, 1 - low, 1 + high)), at most -A dual where A < 0; times the correction.

    With old="old_logprobs" the trust interval is around the policy before the update, whoever sampled, and the
    correction accounts for who did. Source: Batch size-invariance for policy optimization, 2021,
    arXiv:2110.00641.

    Args:
        low: how far below 1 the ratio may be pushed.
        high: how far above 1.
        dual: bound of the ratio of choices with a negative advantage, > 1 + high; none leaves it open.
        level: the ratio of each choice ("token"), of the row per choice ("sequence", a geometric mean), or of the row
            as one joint action ("row"; use it with weights that count each row the same).
        old: column of the log-probs that the ratio is taken against: "logprobs" as sampled, or "old_logprobs".
        correction: column of weights that multiply the loss of each choice; none for 1.
    """

    low: float = 0.2
    high: float = 0.2
    dual: float | None = None
    level: Literal["token", "sequence", "row"] = "token"
    old: str = "logprobs"
    correction: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.low <= 1 or self.high < 0:
            raise ValueError(f"clipped_surrogate: need 0 <= low <= 1 and high >= 0, got {self.low} and {self.high}")
        if self.dual is not None and self.dual <= 1 + self.high:
            raise ValueError(f"clipped_surrogate.dual must be > 1 + high = {1 + self.high}, got {self.dual}")

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"mask", "advantages", self.old, *_named(self.correction)})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        loss = clipped_surrogate(*self._pair(out, batch), self.low, self.high, self.dual)
        return _corrected(loss, batch, self.correction)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """ratio; clip_fraction: choices whose gradient is cut; kl: KL(old || new) by k3, nats per choice."""
        return self._notes(*self._pair(out, batch), out, batch)

    def measured(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        ratio, advantages = self._pair(out, batch)
        loss = clipped_surrogate(ratio, advantages, self.low, self.high, self.dual)
        loss = _corrected(loss, batch, self.correction)
        with torch.no_grad():
            return loss, self._notes(ratio.detach(), advantages, out, batch)

    def _notes(self, ratio: Tensor, advantages: Tensor, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        mask = batch["mask"]
        old, new = zero_outside(batch[self.old], mask), zero_outside(out.logprobs, mask)
        return {
            "ratio": ratio,
            "clip_fraction": clipped(ratio, advantages, self.low, self.high, self.dual).to(ratio.dtype),
            "kl": divergence(old, new, "k3"),
        }

    def _pair(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, Tensor]:
        mask = batch["mask"]
        ratio = log_ratio(out.logprobs, batch[self.old], mask, self.level).exp()
        return ratio, zero_outside(batch["advantages"], mask)


def _named(column: str | None) -> set[str]:
    return set() if column is None else {column}


def _corrected(loss: Tensor, batch: Batch, column: str | None) -> Tensor:
    return loss if column is None else loss * zero_outside(batch[column], batch["mask"])
