"""Terms for logged trajectories with one reward at their end, each in one row: text, or a whole episode's choices."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.batch import Batch
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside
from mmrl.ops.path_consistency import policy_residual, value_residual
from mmrl.types import PolicyOutput


@dataclass(frozen=True)
class _PathConsistency(Term):
    """Squared residual of the soft Bellman identity over a row's suffixes.

    Args:
        beta: price of a nat of distance to the reference, in units of reward.
        reference: column of the reference's log-probs.
    """

    beta: float = 0.03
    reference: str = "ref_logprobs"

    needs = frozenset({"values"})

    def __post_init__(self) -> None:
        if self.beta <= 0:
            raise ValueError(f"path_consistency.beta must be > 0, got {self.beta}")

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"action_mask", "episode_reward", self.reference})

    def _parts(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        mask = batch["action_mask"]
        if out.values is None or out.values.dim() != 2:
            raise ValueError("path_consistency needs values of every choice; set model.policy.value_head=true")
        log_ratio = zero_outside(out.logprobs, mask) - zero_outside(batch[self.reference], mask)
        return zero_outside(out.values, mask), log_ratio, batch["episode_reward"].to(out.values.dtype), mask


@dataclass(frozen=True)
class PathValue(_PathConsistency):
    """(V_t - R + beta sum_{i>=t} d_i)^2 with the log-ratios d as constants: fits the values."""

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return value_residual(*self._parts(out, batch), self.beta).square()


@dataclass(frozen=True)
class PathPolicy(_PathConsistency):
    """(V_t - R + beta sum_{i>=t} d_i)^2 with all but d_t as constants: fits the policy, choice by choice."""

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return policy_residual(*self._parts(out, batch), self.beta).square()
