"""Advantage-weighted regression: imitate recorded actions, weighted by how much better they were than expected."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.columns import Column, register_columns
from mmrl.core.errors import check_positive
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside

register_columns(
    {"recorded_advantages": Column("[N, T]", "reward", "how much better a recorded action is than the policy's value")}
)


@dataclass(frozen=True)
class AdvantageWeightedRegression(Term):
    """AWR: -min(exp(A / temperature), max_weight) * log pi(a given s), of the recorded action a with advantage A.

    A phase before it writes the column `recorded_advantages`. Source: Peng et al., "Advantage-Weighted Regression",
    2019, arXiv:1910.00177, equation 8, with the weights clipped from above.

    Args:
        temperature: of the weights, in units of the return; IQL's beta is its inverse, AWAC's lambda is it.
        max_weight: largest weight.
    """

    temperature: float = 1.0
    max_weight: float = 100.0

    def __post_init__(self) -> None:
        check_positive("AdvantageWeightedRegression", temperature=self.temperature, max_weight=self.max_weight)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "recorded_advantages"})

    def weights(self, batch: Batch) -> Tensor:
        """min(exp(A / temperature), max_weight) [N, T]; the exponent is clamped first, so that none overflows."""
        exponent = zero_outside(batch["recorded_advantages"], batch["action_mask"]) / self.temperature
        return exponent.clamp(max=80.0).exp().clamp(max=self.max_weight)

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return -self.weights(batch) * zero_outside(out.logprobs, batch["action_mask"])

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        weights = self.weights(batch)
        return {"weight": weights, "clipped_fraction": (weights >= self.max_weight).to(torch.float32)}
