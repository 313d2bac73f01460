"""Imitation losses: negative log-likelihood of stored choices, whatever their reward."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside


@dataclass(frozen=True)
class NegativeLogLikelihood(Term):
    """Negative log-likelihood of each stored choice, in nats: behaviour cloning, supervised fine-tuning.

    At the policy's own choices its mean is an estimate of the entropy, whose gradient follows the samples alone. The
    likelihood is that of the whole distribution, also of choices that truncated sampling drew.

    Args:
        context: evaluate the choices in this other context of `data.transforms`.
    """

    context: str | None = None

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def others(self) -> frozenset[str]:
        return frozenset() if self.context is None else frozenset({self.context})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        context_out = out if self.context is None else out.other(self.context, "negative_log_likelihood")
        return -zero_outside(context_out.full_logprobs, batch["action_mask"])
