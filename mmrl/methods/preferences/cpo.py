"""CPO: DPO without a reference, and the likelihood of the preferred answer.

Contrastive Preference Optimization: Pushing the Boundaries of LLM Performance in Machine Translation, 2024,
arXiv:2401.08417.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least, check_positive
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import masked_mean, masked_sum
from mmrl.ops.preference import bradley_terry_loss, paired_margin


@dataclass(frozen=True)
class CPOLoss(Term):
    """CPO loss of a pair, per row [N]: -log sigmoid(beta (L(chosen) - L(rejected))) - nll_coef l(chosen).

    L is the sum of a row's log-probs and l their mean over its choices, as in the released code. Both rows of a pair
    carry its loss. Source: Contrastive Preference Optimization, 2024, equations 4 and 5, arXiv:2401.08417.

    Args:
        beta: of the difference, per nat.
        nll_coef: weight of the likelihood of the chosen row.
    """

    beta: float = 0.1
    nll_coef: float = 1.0

    whole_groups = True

    def __post_init__(self) -> None:
        check_positive("cpo_loss", beta=self.beta)
        check_at_least(0, "cpo_loss", nll_coef=self.nll_coef)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "group", "preference"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        loss = bradley_terry_loss(self.beta * self._margin(out, batch)) + self.nll_coef * self._nll(out, batch)
        return torch.where(batch["preference"] != 0, loss, 0)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """margin: nats; accuracy: fraction of pairs where it is positive; nll: weighted, nats per choice."""
        margin = self._margin(out, batch)
        accuracy = (margin > 0).to(margin.dtype)
        return {"margin": margin, "accuracy": accuracy, "nll": self.nll_coef * self._nll(out, batch)}

    def _margin(self, out: PolicyOutput, batch: Batch) -> Tensor:
        total = masked_sum(out.logprobs, batch["action_mask"], dim=1)
        return paired_margin(total, batch["preference"], batch["group"])

    def _nll(self, out: PolicyOutput, batch: Batch) -> Tensor:
        """[N] the NLL of the preferred row of each row's group."""
        mean = masked_mean(out.full_logprobs, batch["action_mask"], dim=1)
        return -paired_margin(mean, batch["preference"].clamp(min=0), batch["group"])
