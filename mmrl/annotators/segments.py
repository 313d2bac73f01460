"""Advantages from what the pieces of a row changed, or from what a search found them to be worth."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mmrl.annotators.base import Annotator
from mmrl.batch import Batch
from mmrl.ops.masked import last_inside, zero_outside
from mmrl.ops.segments import segment_advantage
from mmrl.types import Context


@dataclass(frozen=True)
class SegmentAdvantage(Annotator):
    """How much each segment of a row changed what the row is worth: see `mmrl.ops.segments.segment_advantage`.

    Reads the values of the states in which segments begin; `rollout=steps` or an annotator writes them.

    Args:
        gamma: discount factor per segment.
    """

    gamma: float = 1.0

    reads = frozenset({"values", "segment", "reward", "action_mask"})
    writes = frozenset({"advantages"})

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1:
            raise ValueError(f"segment_advantage.gamma must be in (0, 1], got {self.gamma}")

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        columns = batch["values"], batch["segment"], batch["reward"].float(), batch["action_mask"]
        return batch.with_columns(advantages=segment_advantage(*columns, gamma=self.gamma))


@dataclass(frozen=True)
class CentredValues(Annotator):
    """What each choice is worth beyond what the group's rows came to: A = values - mean over rows of their last value.

    Source: Wu et al., "DeepSearch", 2025, arXiv:2509.25454, equation 13: no division by a standard deviation.
    """

    reads = frozenset({"values", "group", "action_mask"})
    writes = frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        if batch["values"].dim() == 1:
            raise ValueError(
                "annotator centred_values needs a value of every choice, as rollout=tree writes them; these are of rows"
            )
        mask, values = batch["action_mask"], zero_outside(batch["values"], batch["action_mask"])
        last = last_inside(mask)
        final = values.gather(1, (last - 1).clamp(min=0)[:, None])[:, 0].double()
        _, group = batch["group"].unique(return_inverse=True)
        counted = (last > 0).double()
        sums = final.new_zeros(int(group.max()) + 1)
        mean = sums.index_add(0, group, final * counted) / sums.index_add(0, group, counted).clamp(min=1)
        out = (values.double() - mean[group][:, None]).to(values.dtype)
        return batch.with_columns(advantages=torch.where(mask, out, 0.0))
