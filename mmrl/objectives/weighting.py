"""How choices share the loss. Each weighting gives the `weights` column of one optimiser window."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor

from mmrl.batch import Batch

Total = Callable[[Tensor], Tensor]
"""Adds a number up over all processes."""


class Weighting(ABC):
    """Turns the mask of a window into weights [N, T]; denominators are those of the whole window on all ranks."""

    reads: frozenset[str] = frozenset({"mask"})

    @abstractmethod
    def __call__(self, batch: Batch, total: Total) -> Tensor: ...
