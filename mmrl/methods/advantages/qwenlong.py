"""QwenLong-L1.5: task-balanced batches and advantages, and AEPO: negative advantages masked by the policy's entropy.

QwenLong-L1.5: Post-Training Recipe for Long-Context Reasoning and Memory Management, 2025, arXiv:2512.12967.

- as many prompts of each task in an iteration: `mmrl.curricula.balanced.BalancedTasks`
- the task of a row as the column `baseline_group`: `TaskColumn`
- rewards centred by the group, in units of the standard deviation of the task: `GroupAdvantage` with
  `scale="batch"` and `scale_by="baseline_group"`
- negative advantages times a number: `NegativeMask`; AEPO is the schedule `EntropyBand` with step 1 at this number,
  which goes to 0 above the band of entropies, to 1 below it, and stays in between
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

import torch

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.errors import check_fraction
from mmrl.core.types import Context, Episode
from mmrl.curricula.balanced import find_task
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
class NegativeMask(Annotator):
    """Multiply negative advantages by `weight`; with 0 only positive advantages train, the denominator stays.

    Source: QwenLong-L1.5, 2025, section 4.4 (AEPO), arXiv:2512.12967, where the weight is 0 or 1.

    Args:
        weight: of negative advantages, in [0, 1]; the schedule `EntropyBand` makes it AEPO.
    """

    weight: float = 1.0

    def __post_init__(self) -> None:
        check_fraction("negative_mask", weight=self.weight)

    def reads(self) -> frozenset[str]:
        return frozenset({"advantages", "action_mask"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        advantages = torch.where(batch["action_mask"], batch["advantages"], 0.0)
        return batch.with_columns(advantages=torch.where(advantages < 0, self.weight * advantages, advantages))
