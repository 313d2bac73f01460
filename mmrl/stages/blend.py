"""Advantages mixed with those of another judge."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mmrl.batch import Batch
from mmrl.ops.advantage import group_advantage
from mmrl.ops.masked import zero_outside
from mmrl.stages.base import Annotator
from mmrl.types import Context


@dataclass(frozen=True)
class BlendedAdvantage(Annotator):
    """(1 - share) A + share B, B the group advantage of another score: (s - mean) / (sample deviation + 1e-6).

    s is the sum of the column over an episode's rows, held in [0, 1]. Groups in which it hardly differs keep A.

    Args:
        column: the score, per row.
        share: of B.
        least: sample deviation of s up to which a group keeps A.
        after: first iteration in which anything is mixed in.
    """

    column: str
    share: float = 0.1
    least: float = 0.1
    after: int = 0

    writes = frozenset({"advantages"})

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or self.least < 0:
            raise ValueError(f"blended_advantage: need 0 <= share <= 1 and least >= 0, got {self.share}, {self.least}")

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"advantages", "mask", "group", "episode", self.column})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        batch.require(self.reads, "annotator blended_advantage")
        own = zero_outside(batch["advantages"], batch["mask"])
        ids, entry = batch["episode"].unique(return_inverse=True)
        score = torch.zeros(len(ids)).index_add(0, entry, batch[self.column].float()).clamp(0, 1)
        group = batch["group"].new_zeros(len(ids)).scatter(0, entry, batch["group"])
        other = group_advantage(score, group, "mean", "sample", 1e-6)
        _, index = group.unique(return_inverse=True)
        centred = group_advantage(score, group, "mean", None)
        size = torch.zeros(int(index.max()) + 1).index_add(0, index, torch.ones(len(ids)))
        spread = torch.zeros_like(size).index_add(0, index, centred.square()) / (size - 1).clamp(min=1)
        told = (spread.sqrt() > self.least)[index] & (ctx.iteration >= self.after)
        mixed = (1 - self.share) * own + self.share * other[entry][:, None]
        chosen = told[entry][:, None] & batch["mask"]
        return batch.with_columns(advantages=torch.where(chosen, mixed, own))
