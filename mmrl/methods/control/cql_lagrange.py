"""CQL with a Lagrange multiplier: alpha is learned, so that the conservative gap of every critic comes to a threshold.

Conservative Q-Learning for Offline Reinforcement Learning, 2020, arXiv:2006.04779, appendix F (CQL-Lagrange), with the
losses of its released code:

    min_Q max_alpha alpha (w (log sum_a exp Q(s, a) - Q(s, a_data)) - tau) + TD loss

- the multiplier beside the values: `LagrangeConservativeActions`
- the critics' part, alpha a constant: `LagrangePenalty`; the multiplier's, the gap a constant: `ThresholdLoss`
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_positive
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext
from mmrl.methods.control.cql import ConservativeActions
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside

LARGEST = 1e6
"""Largest alpha, as in the released code."""


class LagrangeConservativeActions(ConservativeActions):
    """As ConservativeActions, with the logarithm of alpha, extra["log_multiplier"] [1].

    Args:
        samples: actions of each of the three kinds.
        critic: name of the critics.
        actor: name of the policy.
        multiplier: name of the Lagrange multiplier.
    """

    def __init__(self, samples: int = 10, critic: str = "critic", actor: str = "policy", multiplier: str = "cql_alpha"):
        super().__init__(samples, critic, actor)
        self.multiplier = multiplier

    def gives(self) -> frozenset[str]:
        return super().gives() | {"log_multiplier"}

    def models(self) -> frozenset[str]:
        return super().models() | {self.multiplier}

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        out = super().__call__(batch, ctx)
        return replace(out, extra={**out.extra, "log_multiplier": ctx.models[self.multiplier].log})


@dataclass(frozen=True)
class LagrangeTerm(Term):
    """Base class of the two terms of w (log integral of exp Q_k(s, a) - Q_k(s, a_data)) - tau, the gap of critic k.

    Args:
        threshold: tau.
        weight: w.
    """

    threshold: float = 10.0
    weight: float = 5.0

    def __post_init__(self) -> None:
        check_positive(type(self).__name__, weight=self.weight)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"q", "q_soft", "log_multiplier"})

    def measure_gaps(self, out: PolicyOutput) -> Tensor:
        """[N, T, K]."""
        return self.weight * (out.extra["q_soft"] - out.extra["q"]) - self.threshold


@dataclass(frozen=True)
class LagrangePenalty(LagrangeTerm):
    """The critics' loss: alpha * sum_k gap_k, alpha detached."""

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        alpha = out.extra["log_multiplier"].detach().exp().clamp(max=LARGEST)
        return alpha * zero_outside(self.measure_gaps(out).sum(-1), batch["action_mask"])


@dataclass(frozen=True)
class ThresholdLoss(LagrangeTerm):
    """The multiplier's loss: -alpha * mean_k gap_k, the gaps detached; alpha rises where they exceed 0."""

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        alpha = out.extra["log_multiplier"].exp().clamp(max=LARGEST)
        return -alpha * zero_outside(self.measure_gaps(out).mean(-1).detach(), batch["action_mask"])

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        mask = batch["action_mask"]
        alpha = out.extra["log_multiplier"].detach().exp().clamp(max=LARGEST)
        return {"alpha": alpha.expand(mask.shape), "gap": zero_outside(self.measure_gaps(out).mean(-1).detach(), mask)}
