"""OPO: advantages against the mean reward of a group weighted by the lengths of its completions.

On-Policy RL with Optimal Reward Baseline, 2025, arXiv:2505.23585.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.types import Context


@dataclass(frozen=True)
class OptimalBaseline(Annotator):
    """A_i = r_i - b, b = sum_j l_j r_j / sum_j l_j over the group, with l_j the number of choices of episode j.

    The baseline b = E[|g|^2 r] / E[|g|^2], with g the gradient of the log-probability of a completion, has the smallest
    variance of all; |g|^2 grows with the length where gradients of different tokens are orthogonal and equally long.
    """

    def reads(self) -> frozenset[str]:
        return frozenset({"group", "episode", "episode_reward", "action_mask"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        # one entry per episode [E]; its length is that of all its rows
        entry, reward, group = batch.per_episode("episode_reward", "group")
        reward = reward.double()
        length = reward.new_zeros(len(reward)).index_add(0, entry, batch["action_mask"].sum(1).double())
        members = group.unique(return_inverse=True)[1]
        zeros = reward.new_zeros(int(members.max()) + 1 if len(members) else 0)
        # rewards above the lowest of the group, so that equal rewards give exactly 0
        excess = reward - zeros.scatter_reduce(0, members, reward, "amin", include_self=False)[members]
        total = zeros.index_add(0, members, length).clamp(min=1)
        baseline = zeros.index_add(0, members, length * excess) / total
        advantage = (excess - baseline[members]).float()
        return batch.with_columns(advantages=torch.where(batch["action_mask"], advantage[entry][:, None], 0.0))
