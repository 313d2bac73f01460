"""Group-relative advantages (GRPO, RLOO), also in units of the batch or of a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mmrl.annotators.base import Annotator
from mmrl.core.batch import NO_GROUP, Batch
from mmrl.core.errors import check_at_least
from mmrl.core.types import Context
from mmrl.ops.advantage import group_advantage


@dataclass(frozen=True)
class GroupAdvantage(Annotator):
    """GRPO advantage: reward of an episode minus the baseline of its group, equal for all its choices.

    A_i = (r_i - baseline_i) / (scale_i + epsilon), one entry per episode, however many rows it has; exactly 0 where all
    rewards of the group are equal. With scale "batch", groups that are nearly all right or all wrong do not have the
    large advantages that a small std of their own gives (Part I: Tricks or Traps?, 2025, section 5, arXiv:2508.08221);
    with that of a task, fractional and sparse rewards have advantages of one size (QwenLong-L1.5, 2025, section 4.2,
    arXiv:2512.12967).

    Args:
        scale: unit of the advantage: the group's population ("std") or sample ("sample") standard deviation, the
            population standard deviation over all episodes of the iteration, of all processes ("batch"), or none.
        scale_by: with scale "batch", a column: episodes that share its value have a scale of their own, such as those
            of a task.
        baseline: mean reward of the group, or of its other episodes ("leave_one_out", RLOO); none for the plain reward
            of REINFORCE.
        epsilon: is added to the scale, so that equal rewards do not divide by zero.
    """

    scale: Literal["std", "sample", "batch"] | None = "std"
    baseline: Literal["mean", "leave_one_out"] | None = "mean"
    epsilon: float = 1e-4
    scale_by: str | None = None

    def __post_init__(self) -> None:
        if self.baseline is None and self.scale is not None:
            raise ValueError(
                f"group_advantage: scale={self.scale!r} needs a baseline; set scale=null with baseline=null"
            )
        check_at_least(0, "group_advantage", epsilon=self.epsilon)
        if self.scale_by is not None and self.scale != "batch":
            raise ValueError(f"group_advantage.scale_by={self.scale_by!r} needs scale=batch, got scale={self.scale!r}")

    def reads(self) -> frozenset[str]:
        by = {self.scale_by} if self.scale_by is not None else set()
        return frozenset({"group", "episode", "episode_reward", "action_mask"} | by)

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        entry, ids, reward, group = batch.per_episode("episode", "episode_reward", "group")
        _refuse(reward, group, ids, self.baseline, ctx)
        if self.scale != "batch":
            advantage = group_advantage(reward.float(), group, self.baseline, self.scale, self.epsilon)
        else:
            # [E] in float64: rewards minus the mean of their group, in units of the std over groups
            centred = group_advantage(reward.double(), group, self.baseline, None)
            std = self._batch_std(batch, reward.double(), group, ctx)
            advantage = torch.where(centred != 0, centred / (std + self.epsilon), 0).float()
        return batch.with_columns(advantages=torch.where(batch["action_mask"], advantage[entry][:, None], 0.0))

    def _batch_std(self, batch: Batch, reward: Tensor, group: Tensor, ctx: Context) -> Tensor:
        """Standard deviation [E] of the rewards of all processes that share a scale with each episode."""
        keys = [0] * len(reward) if self.scale_by is None else batch.per_episode(self.scale_by)[1].tolist()
        has_group = (group != NO_GROUP).tolist()  # not the row of a process without episodes
        local_rewards = [(key, each) for key, each, one in zip(keys, reward.tolist(), has_group) if one]
        # sorted, so that the std does not depend on the number of processes
        rewards: dict[float, list[float]] = {}
        for key, each in sorted(ctx.collector.gather(local_rewards)):
            rewards.setdefault(key, []).append(each)
        stds = {key: torch.tensor(each, dtype=torch.float64).std(correction=0) for key, each in rewards.items()}
        return torch.tensor([float(stds.get(key, 0.0)) for key in keys], dtype=torch.float64)


def _refuse(reward: Tensor, group: Tensor, ids: Tensor, baseline: str | None, ctx: Context) -> None:
    if not reward.isfinite().all():
        raise ValueError(
            f"episode_reward of episodes {ids[~reward.isfinite()].tolist()} is not finite; check data.reward"
        )
    if baseline is not None and ctx.group_size < 2 and len(group.unique()) == len(group):
        raise ValueError(
            "group_advantage: every group has one episode, so that every advantage is 0; "
            "sample at least 2 episodes per prompt, or set baseline=null and scale=null"
        )
