"""QwenLong-L1.5: task-balanced batches and advantages, and AEPO: negative advantages masked by the policy's entropy.

QwenLong-L1.5: Post-Training Recipe for Long-Context Reasoning and Memory Management, 2025, arXiv:2512.12967.

- as many prompts of each task in an iteration: `mmrl.curricula.balanced.BalancedTasks`
- the task of a row as the column `baseline_group`: `TaskColumn`
- rewards centred by the group, in units of the standard deviation of the task: `TaskScaledAdvantage`
- negative advantages times a number: `NegativeMask`; AEPO is the schedule `EntropyBand` with step 1 at this number,
  which goes to 0 above the band of entropies, to 1 below it, and stays in between
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

import torch

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.types import Context, Episode
from mmrl.curricula.balanced import find_task
from mmrl.data.collate import NO_GROUP
from mmrl.ops.advantage import group_advantage
from mmrl.transforms.base import EpisodeTransform


@dataclass(frozen=True)
class TaskColumn(EpisodeTransform):
    """Write `baseline_group`: a number that the rows of one task share.

    Args:
        info_key: entry of a prompt's `info` that names its task.
    """

    info_key: str = "task"

    def writes(self) -> frozenset[str]:
        return frozenset({"baseline_group"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        out = []
        for episode in episodes:
            name = find_task(episode.prompt, self.info_key)
            number = torch.tensor(zlib.crc32(name.encode()))  # the same in every process
            out.append(replace(episode, turns=[turn.with_columns(baseline_group=number) for turn in episode.turns]))
        return out


@dataclass(frozen=True)
class TaskScaledAdvantage(Annotator):
    """Reward of an episode minus the mean of its group, divided by the std of all rewards of its task.

    A_i = (r_i - mean_group) / (std_task + epsilon), std_task the population standard deviation over the episodes of the
    task in the iteration, of all processes; an episode counts once. So a task with fractional rewards and one with
    sparse ones have advantages of one size. Source: QwenLong-L1.5, 2025, section 4.2, arXiv:2512.12967.

    Args:
        epsilon: is added to the standard deviation.
    """

    epsilon: float = 1e-4

    def __post_init__(self) -> None:
        if self.epsilon < 0:
            raise ValueError(f"task_scaled_advantage.epsilon must be >= 0, got {self.epsilon}")

    def reads(self) -> frozenset[str]:
        return frozenset({"group", "episode", "episode_reward", "action_mask", "baseline_group"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        # one entry per episode: `entry` (rows,) maps rows to episodes, `first` (episodes,) is the first row of each
        ids, entry = batch["episode"].unique(return_inverse=True)
        rows = torch.arange(len(entry))
        first = rows.new_zeros(len(ids)).scatter_reduce(0, entry, rows, "amin", include_self=False)
        reward, task = batch["episode_reward"][first].double(), batch["baseline_group"][first].tolist()
        if not reward.isfinite().all():
            raise ValueError("episode_reward is not finite in some rows; check data.reward")
        has_group = (batch["group"][first] != NO_GROUP).tolist()  # not the row of a process without episodes
        local_rewards = [(name, each) for name, each, one in zip(task, reward.tolist(), has_group) if one]
        # rewards of all processes by task; sorted, so that the std does not depend on the number of processes
        everyone: dict[int, list[float]] = {}
        for name, each in sorted(ctx.collector.gather(local_rewards)):
            everyone.setdefault(name, []).append(each)
        stds = {name: torch.tensor(each, dtype=torch.float64).std(correction=0) for name, each in everyone.items()}
        std = torch.tensor([float(stds.get(name, 0.0)) for name in task], dtype=torch.float64)
        # (episodes,) reward minus the mean of its group, divided by the std of its task; exactly 0 stays 0
        centred = group_advantage(reward, batch["group"][first], "mean", None)
        advantage = torch.where(centred != 0, centred / (std + self.epsilon), 0).float()
        return batch.with_columns(advantages=torch.where(batch["action_mask"], advantage[entry][:, None], 0.0))


@dataclass(frozen=True)
class NegativeMask(Annotator):
    """Multiply negative advantages by `weight`; with 0 only positive advantages train, the denominator stays.

    Source: QwenLong-L1.5, 2025, section 4.4 (AEPO), arXiv:2512.12967, where the weight is 0 or 1.

    Args:
        weight: of negative advantages, in [0, 1]; the schedule `EntropyBand` makes it AEPO.
    """

    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise ValueError(f"negative_mask.weight must be in [0, 1], got {self.weight}")

    def reads(self) -> frozenset[str]:
        return frozenset({"advantages", "action_mask"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        advantages = torch.where(batch["action_mask"], batch["advantages"], 0.0)
        return batch.with_columns(advantages=torch.where(advantages < 0, self.weight * advantages, advantages))
