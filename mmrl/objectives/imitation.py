"""Terms that make stored choices more likely, whatever they earned."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.batch import Batch
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside
from mmrl.types import PolicyOutput


@dataclass(frozen=True)
class NegativeLogLikelihood(Term):
    """Surprise of the policy at each stored choice, in nats: -logprob."""

    reads = frozenset({"mask"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return -zero_outside(out.logprobs, batch["mask"])
