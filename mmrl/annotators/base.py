"""Annotators: batch in, batch with more columns out. Advantage estimators live here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from mmrl.batch import Batch
from mmrl.types import Context


class Annotator(ABC):
    """Reads some columns, writes others, touches nothing else. Sees all rows of this rank's iteration at once."""

    def reads(self) -> frozenset[str]:
        return frozenset()

    def writes(self) -> frozenset[str]:
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
        """Metrics of the rows as this annotator leaves them, the same on all ranks: see `ctx.collector.gather`."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What must survive between iterations, the same on all ranks; empty when nothing does."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
