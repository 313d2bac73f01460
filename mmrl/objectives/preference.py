"""Preference losses: DPO and its variants, Bradley-Terry for reward models; minibatches keep pairs together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mmrl.batch import Batch
from mmrl.objectives.objective import Term
from mmrl.ops.masked import masked_mean, masked_sum, zero_outside
from mmrl.ops.preference import bradley_terry_loss, hinge_loss, ipo_loss, paired_margin
from mmrl.types import PolicyOutput


@dataclass(frozen=True)
class DPOLoss(Term):
    """DPO loss of a pair from its margin of log-ratios to a reference, per row [N].

    m = d(preferred) - d(other), with d a row's log-prob minus the reference's, summed over its choices ("sum") or their
    mean ("mean"). sigmoid: -log sigmoid(beta m), DPO, with label_smoothing cDPO; ipo: (m - 1 / (2 beta))^2; hinge:
    max(0, 1 - beta m), SLiC. Both rows of a pair carry its loss, so that weights that count rows alike
    (`SequenceMean`) count pairs alike. Source: Direct Preference Optimization, 2023, equation 7, arXiv:2305.18290.

    Args:
        loss_type: sigmoid, ipo or hinge.
        beta: strength of the regularisation towards the reference, per nat.
        label_smoothing: assumed fraction of pairs with the wrong label, as in cDPO; sigmoid only.
        reduction: of the log-ratios of a row's choices.
        reference: column of the reference's log-probs; None compares the policy's own.
    """

    loss_type: Literal["sigmoid", "ipo", "hinge"] = "sigmoid"
    beta: float = 0.1
    label_smoothing: float = 0.0
    reduction: Literal["sum", "mean"] = "sum"
    reference: str | None = "ref_logprobs"

    whole_groups = True

    def __post_init__(self) -> None:
        if self.beta <= 0:
            raise ValueError(f"dpo_loss.beta must be > 0, got {self.beta}")
        if not 0 <= self.label_smoothing < 0.5:
            raise ValueError(f"dpo_loss.label_smoothing must be in [0, 0.5), got {self.label_smoothing}")
        if self.label_smoothing and self.loss_type != "sigmoid":
            raise ValueError(f"dpo_loss.label_smoothing belongs to loss_type=sigmoid, not to {self.loss_type!r}")

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "group", "preference", *([] if self.reference is None else [self.reference])})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        margin = self._margin(out, batch)
        loss = {
            "sigmoid": lambda: bradley_terry_loss(self.beta * margin, self.label_smoothing),
            "ipo": lambda: ipo_loss(margin, 1 / (2 * self.beta)),
            "hinge": lambda: hinge_loss(self.beta * margin),
        }[self.loss_type]()
        return torch.where(batch["preference"] != 0, loss, 0)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """margin: nats; accuracy: fraction of pairs whose preferred row gained more."""
        margin = self._margin(out, batch)
        return {"margin": margin, "accuracy": (margin > 0).to(margin.dtype)}

    def _margin(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = batch["action_mask"]
        gained = zero_outside(out.logprobs, mask)
        if self.reference is not None:
            gained = gained - zero_outside(batch[self.reference], mask)
        joined = masked_sum(gained, mask, dim=1) if self.reduction == "sum" else masked_mean(gained, mask, dim=1)
        return paired_margin(joined, batch["preference"], batch["group"])


@dataclass(frozen=True)
class BradleyTerryLoss(Term):
    """Bradley-Terry loss of a reward model, per row [N]: -log sigmoid(value(preferred) - value(other)).

    Args:
        label_smoothing: assumed fraction of pairs with the wrong label.
    """

    label_smoothing: float = 0.0

    whole_groups = True

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 0.5:
            raise ValueError(f"bradley_terry_loss.label_smoothing must be in [0, 0.5), got {self.label_smoothing}")

    def needs(self) -> frozenset[str]:
        return frozenset({"values"})

    def reads(self) -> frozenset[str]:
        return frozenset({"group", "preference"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return torch.where(
            batch["preference"] != 0, bradley_terry_loss(self._margin(out, batch), self.label_smoothing), 0
        )

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """margin: in units of the score; accuracy: fraction of pairs that the scorer orders as labelled."""
        margin = self._margin(out, batch)
        return {"margin": margin, "accuracy": (margin > 0).to(margin.dtype)}

    def _margin(self, out: PolicyOutput, batch: Batch) -> Tensor:
        if out.values is None or out.values.dim() != 1:
            raise ValueError("bradley_terry_loss needs values, one per row, as a scorer gives them: policy=tiny_scorer")
        return paired_margin(out.values, batch["preference"], batch["group"])
