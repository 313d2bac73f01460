"""CoPG (contrastive policy gradient): squared difference of regularised rewards over pairs of completions.

Contrastive Policy Gradient: Aligning LLMs on sequence-level scores in a supervised-friendly fashion, 2024,
arXiv:2406.19185.

- mean over the pairs of a row: `squared_differences`
- the loss: `CoPGLoss`
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_positive
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.advantage import group_mean
from mmrl.ops.policy_gradient import row_log_ratio


def squared_differences(
    value: Tensor,  # [N], with gradient
    group: Tensor,  # [N] ids
    counted: Tensor,  # [N] bool
) -> Tensor:  # [N], 0 where there is no pair
    """Mean of (value_i - value_j)^2 over the n - 1 other rows j of the group.

    With c_i = value_i - mean: sum_j (value_i - value_j)^2 = n (c_i^2 + mean_j c_j^2).
    """
    mean, count = group_mean(value, group, counted)
    square = (value - mean).square()
    spread = group_mean(square, group, counted)[0]
    return torch.where(counted & (count > 1), count * (square + spread) / (count - 1).clamp(min=1), 0)


@dataclass(frozen=True)
class CoPGLoss(Term):
    """CoPG loss: squared difference of regularised rewards over all pairs of a group, per row [N].

    loss_i = mean_{j != i} (g_i - g_j)^2 / (4 beta), g = R - beta (log pi - log pi_ref) of the whole row. It is 0 at
    pi = pi_ref exp(R / beta) / Z alone, whoever sampled the pairs, so no importance ratio enters. Divided by 4 beta,
    its gradient on the policy's own samples is minus that of E[R] - beta KL(pi || pi_ref), with the other completions
    as the baseline (RLOO). With R = 1/2 of a preferred and 0 of another completion it is IPO. A row is a whole
    completion; use a weighting that counts rows alike, such as `SequenceMean`. Source: Contrastive Policy Gradient,
    2024, section 3, arXiv:2406.19185.

    Args:
        beta: reward per nat of distance to the reference.
        reference: column of the reference's log-probs.
    """

    beta: float = 0.1
    reference: str = "ref_logprobs"

    whole_groups = True

    def __post_init__(self) -> None:
        check_positive("copg_loss", beta=self.beta)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "group", "episode_reward", self.reference})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = batch["action_mask"]
        log_ratio = row_log_ratio(out.logprobs, batch[self.reference], mask)
        regularised = batch["episode_reward"].to(log_ratio.dtype) - self.beta * log_ratio
        return squared_differences(regularised, batch["group"], mask.any(1)) / (4 * self.beta)
