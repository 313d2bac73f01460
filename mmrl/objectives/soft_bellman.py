"""Base class of offline losses on the soft Bellman equation, of a policy with a value of every choice."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_positive
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside


@dataclass(frozen=True)
class SoftBellmanTerm(Term):
    """Base class of losses of each choice whose optimum satisfies beta log(pi / pi_ref) = Q - V.

    Args:
        beta: KL coefficient of the distance to the reference, reward per nat.
        reference: column of the reference's log-probs.
    """

    beta: float = 0.03
    reference: str = "ref_logprobs"

    def __post_init__(self) -> None:
        check_positive(type(self).__name__, beta=self.beta)

    def needs(self) -> frozenset[str]:
        return frozenset({"values"})

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "episode_reward", self.reference})

    def parts(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Values [N, T] and log-ratios to the reference [N, T], 0 outside the mask; rewards [N]; mask [N, T]."""
        mask = batch["action_mask"]
        if out.values is None or out.values.dim() != 2:
            raise ValueError(f"{type(self).__name__} needs values of every choice; set model.policy.value_head=true")
        log_ratio = zero_outside(out.logprobs, mask) - zero_outside(batch[self.reference], mask)
        return zero_outside(out.values, mask), log_ratio, batch["episode_reward"].to(out.values.dtype), mask
