"""INPO: regress the log-prob margin of a pair on a mirror-descent step from the old policy and the reference.

Iterative Nash Policy Optimization: Aligning LLMs with General Preferences via No-Regret Learning, 2024,
arXiv:2407.00617. Two players with one policy answer each prompt; no-regret updates against the last policy approach the
Nash policy of a general preference, which no reward needs to explain.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import masked_sum
from mmrl.ops.preference import ipo_loss, paired_margin


@dataclass(frozen=True)
class INPOLoss(Term):
    """INPO loss of a pair, per row [N].

    (h - 1 / (2 eta))^2, with h = D(policy) - tau / eta D(reference) - (eta - tau) / eta D(old) and D a model's log-prob
    of the preferred answer minus that of the other one, summed over choices. With tau = eta it is IPO. Both rows of a
    pair carry its loss, as in `DPOLoss`. Source: Iterative Nash Policy Optimization, 2024, section 3, arXiv:2407.00617.

    Args:
        eta: step of mirror descent, per nat; 1 / (2 eta) nats is the target of h.
        tau: strength of the KL divergence to the reference, per nat, at most eta.
        old: column of the log-probs of the policy at the start of the iteration.
        reference: column of the log-probs of the reference.
    """

    eta: float = 0.1
    tau: float = 0.03
    old: str = "behavior_logprobs"
    reference: str = "ref_logprobs"

    whole_groups = True

    def __post_init__(self) -> None:
        if not 0 < self.tau <= self.eta:
            raise ValueError(f"inpo_loss.tau must be above 0 and at most eta={self.eta}, got {self.tau}")

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "group", "preference", self.old, self.reference})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        loss = ipo_loss(self._margin(out, batch), 1 / (2 * self.eta))
        return torch.where(batch["preference"] != 0, loss, 0)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """margin: h in nats; accuracy: fraction of pairs where it is positive."""
        margin = self._margin(out, batch)
        return {"margin": margin, "accuracy": (margin > 0).to(margin.dtype)}

    def _margin(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask, share = batch["action_mask"], self.tau / self.eta
        policy, old, reference = (
            masked_sum(logprobs, mask, dim=1) for logprobs in (out.logprobs, batch[self.old], batch[self.reference])
        )
        return paired_margin(policy - share * reference - (1 - share) * old, batch["preference"], batch["group"])
