"""Terms that make stored choices more likely, whatever they earned."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.batch import Batch
from mmrl.objectives.objective import Term
from mmrl.ops.masked import masked_mean, zero_outside
from mmrl.types import PolicyOutput


@dataclass(frozen=True)
class NegativeLogLikelihood(Term):
    """Surprise of the policy at each stored choice, in nats: -logprob.

    At the policy's own choices its mean is an estimate of the entropy, whose gradient follows the samples alone.

    Args:
        other: take the choices in this other context of `data.transforms`.
    """

    other: str | None = None

    reads = frozenset({"mask"})

    @property
    def others(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset() if self.other is None else frozenset({self.other})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        seen = out if self.other is None else out.other(self.other, "negative_log_likelihood")
        return -zero_outside(seen.logprobs, batch["mask"])


@dataclass(frozen=True)
class TaughtLikelihood(Term):
    """Mean surprise of the policy at what others wrote into its answer for it to imitate, in nats, per row.

    Those tokens are forced and have no weight of their own: the row's is taken. 0 for rows without any.
    """

    reads = frozenset({"taught"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return -masked_mean(out.logprobs, batch["taught"], dim=1)
