"""SelfAnchoredPenalty: slopes of a penalty that holds the mean of a column's largest entries at a target (SIREN)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from mmrl.annotators.base import Annotator
from mmrl.batch import Batch
from mmrl.types import Context


@dataclass
class SelfAnchoredPenalty(Annotator):
    """Slopes of the self-anchored penalty (h - target)^2, h the mean of the largest entries of a column.

    With P the choices of all ranks whose entry is at or above the quantile and h the mean over P, the penalty is no sum
    over choices, but its gradient is that of sum_{P} slope * entry with slope = 2 (h - target) / |P|, and h is known
    before the updates. So `penalty_slope` holds 2 (h - target) n / |P| on P and 0 elsewhere, n the number of choices:
    with weights of a token mean a term `penalty_slope * entry` has the gradient of the penalty. The target is the h of
    the run's first iteration, and is saved in its checkpoints. Source: Rethinking Entropy Regularization in Large
    Reasoning Models, 2025, self-anchored regularisation.

    Args:
        column: the regularised statistic, [N, T].
        quantile: of the entries inside the mask; P are those at or above it.
        target: a number in place of the h of the first iteration.
    """

    column: str
    quantile: float = 0.8
    target: float | None = None
    _target: float | None = field(default=None, init=False, repr=False)
    _latest: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    writes = frozenset({"penalty_slope"})

    def __post_init__(self) -> None:
        if not 0 <= self.quantile < 1:
            raise ValueError(f"self_anchored_penalty.quantile must be in [0, 1), got {self.quantile}")

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"action_mask", self.column})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        mask, value = batch["action_mask"], batch[self.column]
        everyone = torch.cat(ctx.collector.gather([value[mask].double()]))
        if not len(everyone):
            return batch.with_columns(penalty_slope=torch.zeros(mask.shape))
        threshold = everyone.quantile(self.quantile)
        chosen = everyone[everyone >= threshold]
        mean = float(chosen.mean())
        if self._target is None:
            self._target = mean if self.target is None else self.target
        self._latest = {"mean": mean, "target": self._target, "fraction": len(chosen) / len(everyone)}
        slope = 2 * (mean - self._target) * len(everyone) / len(chosen)
        return batch.with_columns(penalty_slope=torch.where(mask & (value >= threshold), slope, 0.0))

    def metrics(self, batch: Batch, ctx: Context) -> dict[str, float]:
        """mean: h; target; fraction: of the choices that are in P."""
        return self._latest

    def state_dict(self) -> dict[str, Any]:
        return {"target": self._target}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._target = state.get("target", self._target)
