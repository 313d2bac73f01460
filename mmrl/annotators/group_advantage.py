"""Group-relative advantages (GRPO, RLOO)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.types import Context
from mmrl.ops.advantage import group_advantage


@dataclass(frozen=True)
class GroupAdvantage(Annotator):
    """GRPO advantage: reward of an episode minus the baseline of its group, equal for all its choices.

    A_i = (r_i - baseline_i) / (scale_i + epsilon), one entry per episode, however many rows it has.

    Args:
        scale: unit of the advantage: the group's population ("std") or sample ("sample") standard deviation, or none.
        baseline: mean reward of the group, or of its other episodes ("leave_one_out", RLOO); none for the plain reward
            of REINFORCE.
        epsilon: is added to the scale, so that equal rewards do not divide by zero.
    """

    scale: Literal["std", "sample"] | None = "std"
    baseline: Literal["mean", "leave_one_out"] | None = "mean"
    epsilon: float = 1e-4

    def __post_init__(self) -> None:
        if self.baseline is None and self.scale is not None:
            raise ValueError(
                f"group_advantage: scale={self.scale!r} needs a baseline; set scale=null with baseline=null"
            )
        if self.epsilon < 0:
            raise ValueError(f"group_advantage.epsilon must be >= 0, got {self.epsilon}")

    def reads(self) -> frozenset[str]:
        return frozenset({"group", "episode", "episode_reward", "action_mask"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        ids, entry = batch["episode"].unique(return_inverse=True)
        rows = torch.arange(len(entry))
        first = rows.new_zeros(len(ids)).scatter_reduce(0, entry, rows, "amin", include_self=False)
        reward, group = batch["episode_reward"][first].float(), batch["group"][first]
        _refuse(reward, group, ids, self.baseline, ctx)
        advantage = group_advantage(reward, group, self.baseline, self.scale, self.epsilon)
        return batch.with_columns(advantages=torch.where(batch["action_mask"], advantage[entry][:, None], 0.0))


def _refuse(reward: torch.Tensor, group: torch.Tensor, ids: torch.Tensor, baseline: str | None, ctx: Context) -> None:
    if not reward.isfinite().all():
        raise ValueError(
            f"episode_reward of episodes {ids[~reward.isfinite()].tolist()} is not finite; check data.reward"
        )
    if baseline is not None and ctx.group_size < 2 and len(group.unique()) == len(group):
        raise ValueError(
            "group_advantage: every group has one episode, so that every advantage is 0; "
            "sample at least 2 episodes per prompt, or set baseline=null and scale=null"
        )
