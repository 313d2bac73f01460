"""Lite PPO: advantages centred by the group mean and divided by the standard deviation of the batch.

Part I: Tricks or Traps? A Deep Dive into RL for LLM Reasoning, 2025, arXiv:2508.08221.

- the advantages: `BatchScaledAdvantage`; the token-level loss is the weighting `TokenMean`
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.types import Context
from mmrl.data.collate import NO_GROUP
from mmrl.ops.advantage import group_advantage


@dataclass(frozen=True)
class BatchScaledAdvantage(Annotator):
    """Reward of an episode minus the mean of its group, divided by the std of all rewards of the iteration.

    A_i = (r_i - mean_group) / (std_batch + epsilon), std_batch the population standard deviation over the episodes of
    all processes; an episode counts once. Groups that are nearly all right or all wrong are not blown up as by a std of
    their own. All 0 where all rewards of every group are equal. Source: Part I: Tricks or Traps? A Deep Dive into RL
    for LLM Reasoning, 2025, section 5, arXiv:2508.08221.

    Args:
        epsilon: is added to the standard deviation.
    """

    epsilon: float = 1e-4

    def __post_init__(self) -> None:
        if self.epsilon < 0:
            raise ValueError(f"batch_scaled_advantage.epsilon must be >= 0, got {self.epsilon}")

    def reads(self) -> frozenset[str]:
        return frozenset({"group", "episode", "episode_reward", "action_mask"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        ids, entry = batch["episode"].unique(return_inverse=True)
        rows = torch.arange(len(entry))
        first = rows.new_zeros(len(ids)).scatter_reduce(0, entry, rows, "amin", include_self=False)
        reward = batch["episode_reward"][first].double()
        if not reward.isfinite().all():
            raise ValueError("episode_reward is not finite in some rows; check data.reward")
        learned = batch["group"][first] != NO_GROUP  # not the row of a process without episodes
        everyone = torch.tensor(sorted(ctx.collector.gather(reward[learned].tolist())), dtype=torch.float64)
        std = everyone.std(correction=0) if len(everyone) else everyone.new_zeros(())
        centred = group_advantage(reward, batch["group"][first], "mean", None)
        advantage = torch.where(centred != 0, centred / (std + self.epsilon), 0).float()
        return batch.with_columns(advantages=torch.where(batch["action_mask"], advantage[entry][:, None], 0.0))
