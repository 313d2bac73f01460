"""ZLPR: multi-label loss that keeps the scores of labels above 0 and those of all others below."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.objectives.preference import read_scores


def zlpr_loss(
    scores: Tensor,  # [N, K]
    labels: Tensor,  # [N, K] in {0, 1}, or NaN where it is not known
) -> Tensor:  # [N] nats
    """L = log(1 + sum over labels of 0 of e^s) + log(1 + sum over labels of 1 of e^-s); 0 is the threshold.

    Unknown labels count in neither sum. Source: ZLPR: A Novel Loss for Multi-label Classification, 2022,
    arXiv:2208.02955; DuoGuard, 2025, arXiv:2502.05163.
    """
    zero = scores.new_zeros(len(scores), 1)
    negative = torch.cat([zero, scores.masked_fill(~(labels < 0.5), -torch.inf)], dim=1)  # NaN is in neither
    positive = torch.cat([zero, (-scores).masked_fill(~(labels >= 0.5), -torch.inf)], dim=1)
    return negative.logsumexp(1) + positive.logsumexp(1)


@dataclass(frozen=True)
class ZLPRLoss(Term):
    """ZLPR loss of answers with labels of 0 or 1, per row [N]; a label is predicted where its score is above 0.

    Source: ZLPR, 2022, arXiv:2208.02955.
    """

    def needs(self) -> frozenset[str]:
        return frozenset({"values"})

    def reads(self) -> frozenset[str]:
        return frozenset({"labels"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return zlpr_loss(*self._pair(out, batch))

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """accuracy: fraction of the known labels that the scores predict."""
        scores, labels = self._pair(out, batch)
        known = ~labels.isnan()
        right = ((scores > 0) == (labels > 0.5)) & known
        return {"accuracy": right.sum(1) / known.sum(1).clamp(min=1)}

    def _pair(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, Tensor]:
        scores, labels = read_scores(out, "zlpr_loss"), batch["labels"]
        if labels.shape != scores.shape:
            raise ValueError(
                f"zlpr_loss: the rows have {labels.shape[1]} labels and the policy has {scores.shape[1]} heads; set "
                f"policy.heads={labels.shape[1]}"
            )
        return scores, labels
