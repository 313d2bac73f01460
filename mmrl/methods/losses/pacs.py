"""PACS: binary cross-entropy of the outcome with the centred log-ratio of the policy as its logit.

Implicit Actor Critic Coupling via a Supervised Learning Framework for RLVR, 2025, arXiv:2509.02522.

- score of a completion against the others of its group: `leave_one_out`
- weights of the two classes of a group: `class_weights`
- the loss: `PACSLoss`
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from mmrl.core.batch import Batch
from mmrl.core.errors import check_positive
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.advantage import group_mean
from mmrl.ops.policy_gradient import row_log_ratio


def leave_one_out(
    score: Tensor,  # [N], with gradient
    group: Tensor,  # [N] ids
    counted: Tensor,  # [N] bool
) -> Tensor:  # [N]
    """score_i minus the mean score of the n - 1 others of its group; the score itself where there is no other."""
    mean, count = group_mean(score, group, counted)
    return torch.where(count > 1, (score - mean) * count / (count - 1).clamp(min=1), score)


def class_weights(
    right: Tensor,  # [N] 0 or 1
    group: Tensor,  # [N] ids
    counted: Tensor,  # [N] bool
) -> Tensor:  # [N]
    """n / (2 n_class) in a group of n rows with both classes, else 1: both classes then count alike."""
    # (rows,) fraction of correct rows in the group, and of the row's own class
    fraction, _ = group_mean(right, group, counted)
    class_share = torch.where(right > 0, fraction, 1 - fraction)
    return torch.where((fraction > 0) & (fraction < 1), 1 / (2 * class_share.clamp(min=1e-6)), 1)


@dataclass(frozen=True)
class PACSLoss(Term):
    """PACS loss: binary cross-entropy of the outcome with the leave-one-out log-ratio as its logit, per row [N].

    loss_i = w_i BCE(psi_i, y_i), psi_i = s_i - mean_{j != i} s_j, s = beta (log pi - log pi_old) of the whole row,
    y = 1 where the reward reaches the threshold; gradients flow through all s. Groups of one class still have a loss. A
    row is a whole completion; use a weighting that counts rows alike, such as `SequenceMean`. Source: Implicit Actor
    Critic Coupling via a Supervised Learning Framework for RLVR, 2025, section 3, arXiv:2509.02522.

    Args:
        beta: logit per nat.
        balanced: weigh the two classes of a group alike.
        success_threshold: smallest reward of a right completion.
        old: column of the log-probs of the policy before the update.
    """

    beta: float = 1.0
    balanced: bool = True
    success_threshold: float = 1.0
    old: str = "behavior_logprobs"

    whole_groups = True

    def __post_init__(self) -> None:
        check_positive("pacs_loss", beta=self.beta)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "group", "episode_reward", self.old})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        loss, _, _ = self._parts(out, batch)
        return loss

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """accuracy: fraction of completions whose logit has the sign of the outcome."""
        _, logit, right = self._parts(out, batch)
        return {"accuracy": ((logit > 0) == (right > 0)).to(logit.dtype)}

    def _parts(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        # (rows,) scaled log-ratio of the whole row, and its distance from the other rows of the group
        mask, group = batch["action_mask"], batch["group"]
        score, counted = self.beta * row_log_ratio(out.logprobs, batch[self.old], mask), mask.any(1)
        logit = leave_one_out(score, group, counted)
        right = (batch["episode_reward"] >= self.success_threshold).to(logit.dtype)
        loss = binary_cross_entropy_with_logits(logit, right, reduction="none")
        if self.balanced:
            loss = loss * class_weights(right, group, counted)
        return torch.where(counted, loss, 0), logit, right
