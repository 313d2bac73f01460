"""Terms that hold the policy near a reference, or keep it open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from mmrl.batch import Batch
from mmrl.objectives.objective import Term
from mmrl.ops.divergence import divergence
from mmrl.ops.masked import zero_outside
from mmrl.types import PolicyOutput


@dataclass(frozen=True)
class KL(Term):
    """Estimate of KL(policy || reference) at each choice, in nats.

    With d = reference - logprobs: k1 = -d (no gradient on average), k2 = d^2 / 2 (gradient of KL(policy || reference)),
    k3 = exp(d) - 1 - d (gradient of KL(reference || policy)).

    Args:
        estimator: which of them.
        reference: column of the reference's log-probs.
    """

    estimator: Literal["k1", "k2", "k3"] = "k3"
    reference: str = "ref_logprobs"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"mask", self.reference})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = batch["mask"]
        reference, logprobs = zero_outside(batch[self.reference], mask), zero_outside(out.logprobs, mask)
        return divergence(logprobs, reference, self.estimator)


@dataclass(frozen=True)
class Entropy(Term):
    """Minus the entropy of each choice, in nats: minimising it keeps the policy open."""

    reads = frozenset({"mask"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return -zero_outside(out.entropy, batch["mask"])
