"""Label losses of a reward model: one class, several labels, or numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.objectives.preference import read_scores


@dataclass(frozen=True)
class LabelLoss(Term):
    """Loss of single answers with labels, per row [N], as the `problem_type` of transformers' sequence classifiers.

    classification: cross-entropy of the softmax over the heads, with a label of one class (its number, or 1 in one of K
    columns); multi_label: mean over heads of the binary cross-entropy, with labels in [0, 1]; regression: mean over
    heads of the squared error. Heads whose label is NaN count neither in the mean nor in the loss.

    Args:
        kind: classification, multi_label or regression.
    """

    kind: Literal["classification", "multi_label", "regression"] = "regression"

    def needs(self) -> frozenset[str]:
        return frozenset({"values"})

    def reads(self) -> frozenset[str]:
        return frozenset({"labels"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        scores, labels = self._pair(out, batch)
        if self.kind == "classification":
            return cross_entropy(scores, self._classes(labels, scores), reduction="none")
        known = ~labels.isnan()
        targets = torch.where(known, labels, 0)
        loss = binary_cross_entropy_with_logits if self.kind == "multi_label" else _squared_error
        each = torch.where(known, loss(scores, targets, reduction="none"), 0)
        return each.sum(1) / known.sum(1).clamp(min=1)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """accuracy: fraction of the labels that the heads predict; of regression error: mean absolute error."""
        scores, labels = self._pair(out, batch)
        if self.kind == "classification":
            return {"accuracy": (scores.argmax(1) == self._classes(labels, scores)).to(scores.dtype)}
        known = ~labels.isnan()
        if self.kind == "multi_label":
            right = (scores > 0) == (labels > 0.5)
            return {"accuracy": (right & known).sum(1) / known.sum(1).clamp(min=1)}
        error = torch.where(known, (scores - labels).abs(), 0)
        return {"error": error.sum(1) / known.sum(1).clamp(min=1)}

    def _pair(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, Tensor]:
        """Scores [N, K], and labels [N, K] or [N, 1]."""
        scores, labels = read_scores(out, "label_loss"), batch["labels"]
        single = self.kind == "classification" and labels.shape[1] == 1
        if labels.shape != scores.shape and not single:
            raise ValueError(
                f"label_loss: the rows have {labels.shape[1]} labels and the policy has {scores.shape[1]} heads; set "
                f"policy.heads={labels.shape[1]}"
            )
        return scores, labels

    def _classes(self, labels: Tensor, scores: Tensor) -> Tensor:
        classes = labels[:, 0].round() if labels.shape[1] == 1 else labels.argmax(1)
        if not bool(((classes >= 0) & (classes < scores.shape[1])).all()):
            raise ValueError(
                f"label_loss: classes must be numbers from 0 to {scores.shape[1] - 1}, got "
                f"{sorted(set(classes.tolist()))[:5]}; set policy.heads to the number of classes"
            )
        return classes.long()


def _squared_error(scores: Tensor, targets: Tensor, reduction: str) -> Tensor:
    return (scores - targets).square()
