"""KL penalty with a weight for each choice."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.regularizer import KL
from mmrl.ops.masked import zero_outside


@dataclass(frozen=True)
class WeightedKL(KL):
    """KL penalty of each choice times its weight, a column without gradient.

    Source: Ignore the KL Penalty!, 2025, section 4, arXiv:2502.06533, with the estimator k2 and weights that leave
    critical tokens free, of which the reference is unsure; VeriRL, 2025, arXiv:2508.18462, with a weight per answer.

    Args:
        weights: column of the weights.
    """

    weights: str = "kl_weights"

    def reads(self) -> frozenset[str]:
        return super().reads() | {self.weights}

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return super().__call__(out, batch) * zero_outside(batch[self.weights], batch["action_mask"])
