"""ILQL's losses of each token: expectile regression of V on the target Q, and cross-entropy of softmax(Q).

LMRL-Gym, 2023, arXiv:2311.18232; Implicit Language Q Learning, 2022, arXiv:2206.11871, equations of section 4.

- L_V = abs(tau - 1[u < 0]) u^2 with u = min_k Q_target,k - V: `ExpectileValue`
- L_CQL = -sum_k log softmax(Q_k(s, .))[a]: `ConservativeQ`
- L_Q = sum_k (r + gamma V(s') - Q_k)^2 is twice `TDLoss`, whose `returns` are those of GAE at lambda 0
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_interval
from mmrl.core.types import PolicyOutput
from mmrl.objectives.actor_critic.expectile import expectile_loss
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside


@dataclass(frozen=True)
class ExpectileValue(Term):
    """ILQL value loss: expectile regression of V on the smaller target Q of the logged token, which is a constant.

    Args:
        tau: expectile in (0, 1); 0.5 is the mean, near 1 the best logged token.
    """

    tau: float = 0.95

    def __post_init__(self) -> None:
        check_interval("ExpectileValue", "(0, 1)", tau=self.tau)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"values", "min_target_q"})  # [N, T] each

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        if out.values is None or out.values.dim() != 2:
            raise ValueError("ExpectileValue needs values of every choice, such as those of policy ValueGuidedPolicy")
        difference = out.extra["min_target_q"].detach() - out.values
        return expectile_loss(zero_outside(difference, batch["action_mask"]), self.tau)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        if out.values is None:
            raise ValueError("ExpectileValue needs values of every choice")
        return {"v": zero_outside(out.values.detach(), batch["action_mask"])}


@dataclass(frozen=True)
class ConservativeQ(Term):
    """Conservative term of ILQL: cross-entropy of softmax(Q_k(s, .)) at the logged token, summed over the heads."""

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"q_logprobs"})  # [N, T, K]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return -zero_outside(out.extra["q_logprobs"].sum(-1), batch["action_mask"])
