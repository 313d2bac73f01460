"""Value losses: fit predicted values to returns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside


@dataclass(frozen=True)
class SquaredValue(Term):
    """Half the squared error of the predicted return, per row or per choice, as the values are.

    0.5 (v - R)^2; with clip the larger of this and 0.5 (v_old + clamp(v - v_old, -clip, clip) - R)^2.

    Args:
        clip: change from the stored value, in units of reward, beyond which there is no gradient (PPO's value clip).
    """

    clip: float | None = None

    def __post_init__(self) -> None:
        if self.clip is not None and self.clip <= 0:
            raise ValueError(f"squared_value.clip must be > 0 or null, got {self.clip}")

    def needs(self) -> frozenset[str]:
        return frozenset({"values"})

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "returns"} if self.clip is None else {"action_mask", "returns", "values"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        values, returns, mask = out.values, batch["returns"], batch["action_mask"]
        if values is None:
            raise ValueError("squared_value: the policy predicts no values; set model.policy.value_head=true")
        if values.shape != returns.shape:
            raise ValueError(
                f"squared_value: values {tuple(values.shape)} and returns {tuple(returns.shape)} differ in shape; "
                "both are per row [N] or both per choice [N, T]"
            )
        counted = mask if values.dim() == 2 else mask.any(1)
        if self.clip is None:
            return 0.5 * zero_outside(values - returns, counted).square()
        values, returns = zero_outside(values, counted), zero_outside(returns, counted)
        error = (values - returns).square()
        old = zero_outside(batch["values"], counted)
        near = old + (values - old).clamp(-self.clip, self.clip)
        return 0.5 * torch.maximum(error, (near - returns).square())
