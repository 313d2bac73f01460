"""SelfRewardLoss: train the policy's last-token self-reward (LaSeR)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.batch import Batch
from mmrl.objectives.objective import Term
from mmrl.ops.self_reward import self_reward
from mmrl.types import PolicyOutput


@dataclass(frozen=True)
class SelfRewardLoss(Term):
    """Squared error of the self-reward against the verified reward, per row: w (s - r)^2.

    s = scale (logprob - reference) of the self-reward token. Source: LaSeR, 2025, arXiv:2510.14943.

    Args:
        scale: rewards per nat.
        reference: log-probability of the token in the reference, the same everywhere, in nats; none takes it from
            `ref_logprobs`.
    """

    scale: float = 0.1
    reference: float | None = None

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        known = {"self_reward_mask", "self_reward_weight", "episode_reward"}
        return frozenset(known if self.reference is not None else known | {"ref_logprobs"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        reference = batch["ref_logprobs"] if self.reference is None else self.reference
        score = self_reward(out.logprobs, reference, batch["self_reward_mask"], self.scale)
        return batch["self_reward_weight"] * (score - batch["episode_reward"]).square()
