"""Policy-gradient loss for demonstrations whose behaviour probabilities are unknown (RL-PLUS)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.batch import Batch
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside
from mmrl.ops.mixture import mixture_ratio, unlikely
from mmrl.types import PolicyOutput


@dataclass(frozen=True)
class MixtureSurrogate(Term):
    """RL-PLUS surrogate -A ratio (1 - p)^power, with the bounded ratio of `mixture_ratio`; not clipped.

    Args:
        power: how much less likely choices count than unlikely ones; 0 for alike.
        old: column of the policy's log-probs before the update.
    """

    power: float = 0.5
    old: str = "old_logprobs"

    def __post_init__(self) -> None:
        if self.power < 0:
            raise ValueError(f"mixture_surrogate.power must be >= 0, got {self.power}")

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"action_mask", "advantages", self.old})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        ratio, weight, advantages = self._parts(out, batch)
        return -advantages * ratio * weight

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """ratio; unlikely: the factor of choices that the policy would not make by itself."""
        ratio, weight, _ = self._parts(out, batch)
        return {"ratio": ratio, "unlikely": weight}

    def _parts(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        mask = batch["action_mask"]
        new, old = zero_outside(out.logprobs, mask), zero_outside(batch[self.old], mask)
        return mixture_ratio(new, old), unlikely(new, self.power), zero_outside(batch["advantages"], mask)
