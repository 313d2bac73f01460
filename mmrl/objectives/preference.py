"""Terms that compare the preferred row of a group with the other one; minibatches keep such groups whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mmrl.batch import Batch
from mmrl.objectives.objective import Term
from mmrl.ops.masked import masked_mean, masked_sum, zero_outside
from mmrl.ops.preference import hinge_preference, logistic_preference, paired_margin, squared_preference
from mmrl.types import PolicyOutput


@dataclass(frozen=True)
class PreferredRatio(Term):
    """How badly the policy's gain over a reference tells the preferred row of a pair from the other, per row [N].

    m = d(preferred) - d(other), with d a row's log-prob minus the reference's, summed over its choices ("row") or their
    mean ("sequence"). logistic: -log sigmoid(beta m), smoothed; squared: (m - 1 / (2 beta))^2; hinge:
    max(0, 1 - beta m). Both rows of a pair carry its loss, so that weights that count rows alike (`SequenceMean`)
    count pairs alike.

    Args:
        loss: which of them.
        beta: strength of the pull to the reference, per nat.
        smoothing: share of the pairs that are believed to be labelled the wrong way round; logistic only.
        level: of joining a row's choices.
        reference: column of the reference's log-probs; None compares the policy's own.
    """

    loss: Literal["logistic", "squared", "hinge"] = "logistic"
    beta: float = 0.1
    smoothing: float = 0.0
    level: Literal["row", "sequence"] = "row"
    reference: str | None = "ref_logprobs"

    whole_groups = True

    def __post_init__(self) -> None:
        if self.beta <= 0:
            raise ValueError(f"preferred_ratio.beta must be > 0, got {self.beta}")
        if not 0 <= self.smoothing < 0.5:
            raise ValueError(f"preferred_ratio.smoothing must be in [0, 0.5), got {self.smoothing}")
        if self.smoothing and self.loss != "logistic":
            raise ValueError(f"preferred_ratio.smoothing belongs to loss=logistic, not to {self.loss!r}")

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"mask", "group", "preference", *([] if self.reference is None else [self.reference])})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        margin = self._margin(out, batch)
        if self.loss == "logistic":
            lost = logistic_preference(self.beta * margin, self.smoothing)
        elif self.loss == "squared":
            lost = squared_preference(margin, 1 / (2 * self.beta))
        else:
            lost = hinge_preference(self.beta * margin)
        return torch.where(batch["preference"] != 0, lost, 0)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """margin: nats; right: pairs whose preferred row gained more."""
        margin = self._margin(out, batch)
        return {"margin": margin, "right": (margin > 0).to(margin.dtype)}

    def _margin(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = batch["mask"]
        gained = zero_outside(out.logprobs, mask)
        if self.reference is not None:
            gained = gained - zero_outside(batch[self.reference], mask)
        joined = masked_sum(gained, mask, dim=1) if self.level == "row" else masked_mean(gained, mask, dim=1)
        return paired_margin(joined, batch["preference"], batch["group"])


@dataclass(frozen=True)
class PreferredValue(Term):
    """Surprise of a scorer at the stated preference, per row [N]: -log sigmoid(value(preferred) - value(other)).

    Args:
        smoothing: share of the pairs that are believed to be labelled the wrong way round.
    """

    smoothing: float = 0.0

    needs = frozenset({"values"})
    reads = frozenset({"group", "preference"})
    whole_groups = True

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing < 0.5:
            raise ValueError(f"preferred_value.smoothing must be in [0, 0.5), got {self.smoothing}")

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return torch.where(batch["preference"] != 0, logistic_preference(self._margin(out, batch), self.smoothing), 0)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """margin: in units of the score; right: pairs that the scorer orders as stated."""
        margin = self._margin(out, batch)
        return {"margin": margin, "right": (margin > 0).to(margin.dtype)}

    def _margin(self, out: PolicyOutput, batch: Batch) -> Tensor:
        if out.values is None or out.values.dim() != 1:
            raise ValueError("preferred_value needs values, one per row, as a scorer gives them: policy=tiny_scorer")
        return paired_margin(out.values, batch["preference"], batch["group"])
