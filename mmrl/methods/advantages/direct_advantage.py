"""Direct Advantage Policy Optimization (DAPO): regress the log-ratio of each reasoning step on its advantage.

Improving Multi-Step Reasoning Abilities of Large Language Models with Direct Advantage Policy Optimization, 2024,
arXiv:2412.18279.

- log-ratio of a step, the sum over its tokens: `step_log_ratio`
- half the squared difference to A / beta at the end of each step: `StepRegression`
- values of the states in which steps begin: `mmrl.methods.advantages.vine_ppo.StepValues` writes them
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_positive
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside
from mmrl.ops.soft_returns import next_inside


def step_ends(
    segment: Tensor,  # [N, T] ids >= 0 that do not fall along a row
    mask: Tensor,  # [N, T] bool
) -> Tensor:  # [N, T] bool
    """Whether a choice is the last one inside the mask of its step."""
    return mask & (segment != next_inside(segment, mask, -1))


def step_log_ratio(
    log_ratio: Tensor,  # [N, T] nats, with gradient
    segment: Tensor,  # [N, T] ids >= 0
    mask: Tensor,  # [N, T] bool
) -> Tensor:  # [N, T] nats, 0 outside the mask
    """Sum of the log-ratios of a step's choices, at each of them: the log-ratio of the step as one action."""
    inside, index = zero_outside(log_ratio, mask), torch.where(mask, segment, 0)
    steps = int(index.max()) + 1 if index.numel() else 1
    total = inside.new_zeros(len(inside), steps).scatter_add(1, index, inside)
    return zero_outside(total.gather(1, index), mask)


@dataclass(frozen=True)
class StepRegression(Term):
    """(A_k / beta - log(pi / pi_ref)(step k))^2 / 2 at the last choice of each step, 0 at its others.

    A_k = V(s_{k+1}) - V(s_k), and r - V(s_k) for the last step of a row, with V the column `values` of the states in
    which steps begin, the same for all choices of a step, or one per row of one step. No pairs and no ratio. Its
    optimum over steps drawn from pi_ref is pi_ref exp(A / beta), up to what normalises it. Source: Direct Advantage
    Policy Optimization, 2024, arXiv:2412.18279.

    Args:
        beta: advantage per nat.
        reference: column of the log-probs of pi_ref; those of the sampling make the policy of each iteration the
            reference of the next one.
    """

    beta: float = 0.1
    reference: str = "behavior_logprobs"

    def __post_init__(self) -> None:
        check_positive("step_regression", beta=self.beta)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "values", "segment", "reward", self.reference})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        ends, log_ratio = self._ends_and_log_ratio(out, batch)
        mask, reward = batch["action_mask"], batch["reward"].to(log_ratio.dtype)
        values = batch["values"]
        values = zero_outside(values if values.dim() == 2 else values[:, None].expand(mask.shape), mask)
        advantage = next_inside(values, mask, reward) - values
        return zero_outside((advantage / self.beta - log_ratio).square() / 2, ends)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """log_ratio: nats of a step, at its last choice."""
        ends, log_ratio = self._ends_and_log_ratio(out, batch)
        return {"log_ratio": torch.where(ends, log_ratio, 0)}

    def _ends_and_log_ratio(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, Tensor]:
        mask, segment = batch["action_mask"], batch["segment"]
        log_ratio = step_log_ratio(zero_outside(out.logprobs - batch[self.reference], mask), segment, mask)
        return step_ends(segment, mask), log_ratio
