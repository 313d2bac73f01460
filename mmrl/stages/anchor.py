"""A pull of a batch's mean towards an anchor, as a slope per choice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from mmrl.batch import Batch
from mmrl.stages.base import Annotator
from mmrl.types import Context


@dataclass
class PeakAnchor(Annotator):
    """Holds the mean of the largest entries of a column at what it was at first.

    With P the choices of all ranks whose entry is at or above the quantile, h the mean over P and a the anchor, the
    penalty is (h - a)^2. It is no sum over choices, but its gradient is that of sum_{P} slope * entry with
    slope = 2 (h - a) / |P|, and h is known before the updates. So `pull` holds 2 (h - a) n / |P| on P and 0 elsewhere,
    n the number of choices: with weights of a token mean a term `pull * entry` has the gradient of the penalty.
    The anchor is the h of the run's first iteration, and is in its checkpoints.

    Args:
        column: what is held, [N, T].
        quantile: of the entries inside the mask, from which on they count.
        anchor: a number in place of what is found in the first iteration.
    """

    column: str
    quantile: float = 0.8
    anchor: float | None = None
    _found: float | None = field(default=None, init=False, repr=False)
    _latest: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    writes = frozenset({"pull"})

    def __post_init__(self) -> None:
        if not 0 <= self.quantile < 1:
            raise ValueError(f"peak_anchor.quantile must be in [0, 1), got {self.quantile}")

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"mask", self.column})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        batch.require(self.reads, "annotator peak_anchor")
        mask, value = batch["mask"], batch[self.column]
        everyone = torch.cat(ctx.gather([value[mask].double()]))
        if not len(everyone):
            return batch.with_columns(pull=torch.zeros(mask.shape))
        threshold = everyone.quantile(self.quantile)
        chosen = everyone[everyone >= threshold]
        mean = float(chosen.mean())
        if self._found is None:
            self._found = mean if self.anchor is None else self.anchor
        self._latest = {"mean": mean, "anchor": self._found, "share": len(chosen) / len(everyone)}
        slope = 2 * (mean - self._found) * len(everyone) / len(chosen)
        return batch.with_columns(pull=torch.where(mask & (value >= threshold), slope, 0.0))

    def metrics(self, batch: Batch, ctx: Context) -> dict[str, float]:
        """mean: of the entries that count; anchor; share: of the choices that count."""
        return self._latest

    def state_dict(self) -> dict[str, Any]:
        return {"anchor": self._found}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._found = state.get("anchor", self._found)
