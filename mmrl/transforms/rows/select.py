"""Select rows by the magnitude of their advantages."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from mmrl.core.batch import Batch
from mmrl.core.errors import check_interval
from mmrl.core.types import Context
from mmrl.transforms.rows.base import RowTransform


@dataclass(frozen=True)
class SelectByAdvantage(RowTransform):
    """Keeps the rows with the largest mean absolute advantage of their choices, a fraction of those of all ranks.

    Rows near the baseline cost as much as others and move the policy least. Of rows with equal magnitude those of
    the first groups are kept.

    Args:
        fraction: of the rows to keep, rounded up.
    """

    fraction: float = 0.5

    def __post_init__(self) -> None:
        check_interval("select_by_advantage", "(0, 1]", fraction=self.fraction)

    def reads(self) -> frozenset[str]:
        return frozenset({"advantages", "action_mask", "group", "episode", "step"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        mask = batch["action_mask"]
        total = torch.where(mask, batch["advantages"].abs(), 0).sum(1, dtype=torch.float64)
        keys = np.stack(
            [
                *(batch[name].numpy().astype(np.float64) for name in ("step", "episode", "group")),
                -(total / mask.sum(1).clamp(min=1)).numpy(),
            ]
        )
        parts = ctx.collector.gather([(ctx.rank, keys)])
        owner = np.concatenate([np.full(part.shape[1], rank) for rank, part in parts])
        order = np.lexsort(np.concatenate([part for _, part in parts], axis=1))  # the last key counts first
        selected = np.zeros(len(order), dtype=bool)
        selected[order[: math.ceil(self.fraction * len(order))]] = True
        return batch.select(torch.from_numpy(np.flatnonzero(selected[owner == ctx.rank])))
