"""Loss of a process reward model: a label for each step of an answer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term


@dataclass(frozen=True)
class StepLabelLoss(Term):
    """Binary cross-entropy of the steps' labels, per step [N, T]; steps without a label (NaN) cost nothing.

    Source: Let's Verify Step by Step, 2023, section 2.6, arXiv:2305.20050.
    """

    def needs(self) -> frozenset[str]:
        return frozenset({"values"})

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "step_labels"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        values, known = self._values(out, batch)
        targets = torch.where(known, batch["step_labels"], 0)
        return torch.where(known, binary_cross_entropy_with_logits(values, targets, reduction="none"), 0)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """accuracy: fraction of the steps that are on their side of probability 1/2."""
        values, known = self._values(out, batch)
        right = (values > 0) == (batch["step_labels"] > 0.5)
        return {"accuracy": (right & known).to(values.dtype)}

    def _values(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, Tensor]:
        """Values [N, T] of steps, and which of them have a label [N, T]."""
        if out.values is None or out.values.dim() != 2:
            raise ValueError("step_label_loss needs values of steps, as policy=tiny_step_scorer gives them")
        known = batch["action_mask"] & ~batch["step_labels"].isnan()
        return torch.where(known, out.values, 0), known
