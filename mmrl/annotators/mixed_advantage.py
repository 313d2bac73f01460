"""Mixed advantages: those of the reward and those of another score (LaSeR)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mmrl.annotators.base import Annotator
from mmrl.batch import Batch
from mmrl.ops.advantage import group_advantage
from mmrl.ops.masked import zero_outside
from mmrl.types import Context


@dataclass(frozen=True)
class MixedAdvantage(Annotator):
    """Mixed advantages (1 - weight) A + weight B, B the group advantage of another score: (s - mean) / (std + 1e-6).

    s is the sum of the column over an episode's rows, clipped to [0, 1]. Groups in which its sample standard deviation
    is at most `min_std` keep A. Source: LaSeR, 2025, arXiv:2510.14943.

    Args:
        column: the score, per row.
        weight: of B.
        min_std: sample standard deviation of s up to which a group keeps A.
        start_iteration: first iteration in which advantages are mixed.
    """

    column: str
    weight: float = 0.1
    min_std: float = 0.1
    start_iteration: int = 0

    writes = frozenset({"advantages"})

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1 or self.min_std < 0:
            raise ValueError(
                f"mixed_advantage: need 0 <= weight <= 1 and min_std >= 0, got {self.weight}, {self.min_std}"
            )

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"advantages", "action_mask", "group", "episode", self.column})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        own = zero_outside(batch["advantages"], batch["action_mask"])
        ids, entry = batch["episode"].unique(return_inverse=True)
        score = torch.zeros(len(ids)).index_add(0, entry, batch[self.column].float()).clamp(0, 1)
        group = batch["group"].new_zeros(len(ids)).scatter(0, entry, batch["group"])
        other = group_advantage(score, group, "mean", "sample", 1e-6)
        _, index = group.unique(return_inverse=True)
        centred = group_advantage(score, group, "mean", None)
        size = torch.zeros(int(index.max()) + 1).index_add(0, index, torch.ones(len(ids)))
        variance = torch.zeros_like(size).index_add(0, index, centred.square()) / (size - 1).clamp(min=1)
        informative = (variance.sqrt() > self.min_std)[index] & (ctx.iteration >= self.start_iteration)
        mixed = (1 - self.weight) * own + self.weight * other[entry][:, None]
        chosen = informative[entry][:, None] & batch["action_mask"]
        return batch.with_columns(advantages=torch.where(chosen, mixed, own))
