"""Kimi k1.5: mirror-descent policy loss, the squared residual of reward and log-ratio, without a value network.

Kimi k1.5: Scaling Reinforcement Learning with LLMs, 2025, arXiv:2501.12599.

- the loss of a completion: `mirror_descent_loss`, as a term `MirrorDescentLoss`
- its length reward is `mmrl.rewards.shaping.kimi_length`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_positive
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.advantage import group_mean
from mmrl.ops.policy_gradient import row_log_ratio

Baseline = Literal["mean", "log_mean_exp"]


def mirror_descent_loss(
    log_ratio: Tensor,  # [N] nats, with gradient
    reward: Tensor,  # [N]
    group: Tensor,  # [N] ids
    counted: Tensor,  # [N] bool
    tau: float,
    baseline: Baseline = "mean",
) -> Tensor:  # [N]
    """(r - b - tau log_ratio)^2 / (2 tau), b the group's mean reward or its tau log mean exp(r / tau).

    The optimum of E[r] - tau KL(pi || pi_old) satisfies r - tau log Z = tau log(pi / pi_old), and tau log mean
    exp(r / tau) estimates tau log Z; the mean reward stands in for it, and is its limit for a large tau. Divided by
    2 tau, the gradient is minus (r - b) d log pi - tau / 2 d log_ratio^2, the paper's equation 3.
    Source: Kimi k1.5, 2025, section 2.3.2, arXiv:2501.12599.
    """
    if baseline == "mean":
        level = group_mean(reward, group, counted)[0]
    else:
        _, index = group.unique(return_inverse=True)
        # (rows,) largest counted reward of the group, against overflow
        top = torch.where(counted, reward, -torch.inf)
        top = reward.new_full((len(reward),), -torch.inf).scatter_reduce(0, index, top, "amax")[index]
        top = torch.where(top.isfinite(), top, reward)
        level = top + tau * group_mean(((reward - top) / tau).exp(), group, counted)[0].clamp(min=1e-30).log()
    return (reward - level - tau * log_ratio).square() / (2 * tau)


@dataclass(frozen=True)
class MirrorDescentLoss(Term):
    """Kimi k1.5's squared mirror-descent loss against the mean reward of the group, per row [N].

    loss = (r - b - tau log_ratio)^2 / (2 tau); see `mirror_descent_loss`. Samples may be off-policy, as no importance
    ratio enters. A row is a whole completion; use a weighting that counts rows alike, such as `SequenceMean`. Source:
    Kimi k1.5: Scaling Reinforcement Learning with LLMs, 2025, section 2.3.2, arXiv:2501.12599.

    Args:
        tau: reward per nat of distance to the policy of the iteration before.
        baseline: "mean", the mean reward of the group, or "log_mean_exp", the estimate of tau log Z.
        old: column of the log-probs of the policy before the update.
    """

    tau: float = 0.1
    baseline: Baseline = "mean"
    old: str = "behavior_logprobs"

    whole_groups = True

    def __post_init__(self) -> None:
        check_positive("mirror_descent_loss", tau=self.tau)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "group", "episode_reward", self.old})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = batch["action_mask"]
        log_ratio = row_log_ratio(out.logprobs, batch[self.old], mask)
        reward, counted = batch["episode_reward"].to(log_ratio.dtype), mask.any(1)
        loss = mirror_descent_loss(log_ratio, reward, batch["group"], counted, self.tau, self.baseline)
        return torch.where(counted, loss, 0)
