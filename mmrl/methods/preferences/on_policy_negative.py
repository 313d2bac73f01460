"""On-policy samples and negative gradients: Pref-FT, which imitates winners alone, beside losses that lower losers.

Preference Fine-Tuning of LLMs Should Leverage Suboptimal, On-Policy Data, 2024, arXiv:2404.14367.

- Pref-FT: the likelihood of preferred answers, a positive gradient alone: `PreferredLikelihood`
- the negative gradient is that of DPO or IPO on the same pairs: `mmrl.objectives.preference.DPOLoss`
- samples are on-policy where an iteration takes one step on them; data.update_epochs is the paper's T, steps on one
  batch of samples
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside


@dataclass(frozen=True)
class PreferredLikelihood(Term):
    """Pref-FT: negative log-likelihood of the choices of preferred answers, in nats.

    The log-likelihood of answers that are not preferred is added with the weight `negative`: above 0 it is lowered,
    without a bound. Source: Preference Fine-Tuning, 2024, section 3.2, arXiv:2404.14367.

    Args:
        negative: weight of the log-likelihood of answers that are not preferred; 0 for Pref-FT.
    """

    negative: float = 0.0

    def __post_init__(self) -> None:
        check_at_least(0, "preferred_likelihood", negative=self.negative)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "preference"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        sign = batch["preference"][:, None]
        weight = torch.where(sign < 0, -self.negative * sign.abs(), sign)
        return -weight * zero_outside(out.full_logprobs, batch["action_mask"])
