"""METRA's losses: a representation in which one environment step has at most length one."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.batch import Batch
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside
from mmrl.types import PolicyOutput


@dataclass(frozen=True)
class RepresentationLoss(Term):
    """METRA's representation loss: maximise (phi(s') - phi(s)) . z. Source: arXiv:2310.08887, eq. 10."""

    reads = frozenset({"action_mask"})
    needs = frozenset({"skill_reward"})  # [N, T]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return -zero_outside(out.extra["skill_reward"], batch["action_mask"])


@dataclass(frozen=True)
class ConstraintPenalty(Term):
    """METRA's constraint term -lambda * slack, the Lagrange multiplier lambda detached."""

    reads = frozenset({"action_mask"})
    needs = frozenset({"slack", "log_multiplier"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return -out.extra["log_multiplier"].detach().exp() * zero_outside(out.extra["slack"], batch["action_mask"])


@dataclass(frozen=True)
class DualLoss(Term):
    """METRA's dual loss for the Lagrange multiplier: log lambda * slack, the slack detached.

    lambda rises where the slack is negative: where |phi(s') - phi(s)| exceeds its bound.
    """

    reads = frozenset({"action_mask"})
    needs = frozenset({"slack", "log_multiplier"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return out.extra["log_multiplier"] * zero_outside(out.extra["slack"].detach(), batch["action_mask"])

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        mask = batch["action_mask"]
        multiplier = out.extra["log_multiplier"].detach().exp().expand(mask.shape)
        return {"multiplier": multiplier, "slack": zero_outside(out.extra["slack"].detach(), mask)}
