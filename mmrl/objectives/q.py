"""Losses of actor-critic methods with Q-functions: TD error, deterministic policy gradient, entropy and temperature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside


@dataclass(frozen=True)
class TDLoss(Term):
    """TDLoss: half the squared TD error of every critic, sum_k 0.5 (Q_k - R)^2.

    R is the column `returns`, per row or per choice; `BellmanTarget` writes it.
    """

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "returns"})

    def needs(self) -> frozenset[str]:
        return frozenset({"q"})  # [N, T, K]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask, returns = batch["action_mask"], batch["returns"]
        returns = zero_outside(returns if returns.dim() == 2 else returns[:, None], mask)
        error = out.extra["q"] - returns[..., None]
        return 0.5 * zero_outside(error.square().sum(dim=-1), mask)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        return {"q": zero_outside(out.extra["q"].mean(dim=-1), batch["action_mask"])}


@dataclass(frozen=True)
class ActorLoss(Term):
    """ActorLoss: maximise Q of the policy's actions, -Q (deterministic policy gradient; SAC and TD3).

    Args:
        q_reduction: over the K critics: their minimum (SAC), their mean, or the first one (TD3).
    """

    q_reduction: Literal["min", "mean", "first"] = "min"

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"q"})  # [N, T, K]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        q = out.extra["q"]
        value = {"min": lambda: q.amin(-1), "mean": lambda: q.mean(-1), "first": lambda: q[..., 0]}[self.q_reduction]()
        return -zero_outside(value, batch["action_mask"])


@dataclass(frozen=True)
class EntropyBonus(Term):
    """SAC entropy bonus: alpha * log pi(a given s), alpha detached. Source: arXiv:1812.05905, equation 7."""

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"log_ent_coef"})  # [1]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return out.extra["log_ent_coef"].detach().exp() * zero_outside(out.logprobs, batch["action_mask"])


@dataclass(frozen=True)
class TemperatureLoss(Term):
    """SAC temperature loss: -log alpha * (log pi + target entropy), log pi detached.

    alpha, the entropy coefficient, rises where the entropy -log pi is below its target and falls where it is above.
    Source: arXiv:1812.05905, equation 18, with log alpha in place of alpha, which has the same sign.

    Args:
        target_entropy: in nats; for an action of A dimensions in [-1, 1] usually -A.
    """

    target_entropy: float

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"log_ent_coef"})  # [1]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return -out.extra["log_ent_coef"] * zero_outside(
            out.logprobs.detach() + self.target_entropy, batch["action_mask"]
        )

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        mask = batch["action_mask"]
        ent_coef = out.extra["log_ent_coef"].detach().exp().expand(mask.shape)
        return {"ent_coef": ent_coef, "entropy": zero_outside(-out.logprobs.detach(), mask)}
