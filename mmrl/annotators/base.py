"""Interface of annotators: functions from batch to batch that add columns, such as advantages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from mmrl.core.batch import Batch
from mmrl.core.types import Context


class Annotator(ABC):
    """Base class: maps a batch to a batch with further columns. It is called with all rows of this rank's iteration."""

    def reads(self) -> frozenset[str]:
        """Names of the columns that it reads."""
        return frozenset()

    def writes(self) -> frozenset[str]:
        """Names of the columns that it adds or replaces."""
        return frozenset()

    def needs(self) -> frozenset[str]:
        """Parts of the policy's output beyond logprobs and entropy: "values", ..."""
        return frozenset()

    def contexts(self) -> frozenset[str]:
        """Other contexts of the rows, given by a transform of the episodes."""
        return frozenset()

    def models(self) -> frozenset[str]:
        """Auxiliary models taken from ctx.models, for example "reference"."""
        return frozenset()

    @abstractmethod
    def __call__(self, batch: Batch, ctx: Context) -> Batch: ...

    def metrics(self, batch: Batch, ctx: Context) -> dict[str, float]:
        """Metrics of the annotated rows, equal on all ranks: see `ctx.collector.gather`."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """State to save in checkpoints, equal on all ranks; empty for annotators without state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
