"""Interface of row transforms: functions from annotated rows to the rows that are trained on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from mmrl.core.batch import Batch
from mmrl.core.types import Context


class RowTransform(ABC):
    """Base class: drops, repeats or adds rows, once per iteration, after the annotators and before the weighting.

    It is called with this rank's rows, on all ranks and also where a rank has none. What it chooses over all ranks must
    not depend on how rows are divided among them: see `ctx.collector.gather`.
    """

    @property
    def max_age(self) -> int:
        """Age in iterations of the oldest rows that it adds, beyond `data.staleness`; older rows are refused."""
        return 0

    def reads(self) -> frozenset[str]:
        """Names of the columns that it reads."""
        return frozenset()

    @abstractmethod
    def __call__(self, batch: Batch, ctx: Context) -> Batch: ...

    def state_dict(self) -> dict[str, Any]:
        """State to save in checkpoints, equal on all ranks; empty for transforms without state. Collective."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
