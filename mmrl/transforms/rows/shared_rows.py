"""Rows that the processes of a sequence group have in common: each gets those of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mmrl.core.batch import Batch, Ragged
from mmrl.core.columns import OPTIONAL, pad_value
from mmrl.transforms.rows.concatenation import concatenate

if TYPE_CHECKING:
    from mmrl.distributed.sequence_group import SequenceGroup
    from mmrl.policies.base import Policy


@dataclass(frozen=True)
class SharedRows:
    """Gathers the rows of a sequence group.

    Args:
        group: of this process.
        policy: knows how observations are padded.
    """

    group: SequenceGroup
    policy: Policy | None = None

    def gather(self, batch: Batch) -> tuple[Batch, slice]:
        """Gather the rows of all processes of the group in rank order, and say which are this one's. Collective.

        Args:
            batch: this process's rows, in host memory; there may be none.
        """
        if self.group.size == 1:
            return batch, slice(0, batch.rows)
        # a pickled view would have all rows of the batch that it is a part of
        parts = self.group.gather({name: _copy_column(column) for name, column in batch.items()})
        batches = [Batch(part) for part in _add_optional(parts)]
        start = sum(part.rows for part in batches[: self.group.rank])
        return concatenate(batches, self.policy), slice(start, start + batch.rows)


def _copy_column(column: Tensor | Ragged) -> Tensor | Ragged:
    return column.compact() if isinstance(column, Ragged) else column.clone()


def _add_optional(batches: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the optional columns that other processes have, filled with padding."""
    names = {name: column for batch in batches for name, column in batch.items() if name in OPTIONAL}
    return [
        batch | {name: _pad_column(name, like, batch) for name, like in names.items() if name not in batch}
        for batch in batches
    ]


def _pad_column(name: str, like: Tensor | Ragged, batch: dict[str, Any]) -> Tensor | Ragged:
    rows, choices = batch["action_mask"].shape
    if isinstance(like, Ragged):
        return Ragged(like.items[:0], torch.zeros(rows, dtype=torch.long))
    return like.new_full((rows, choices, *like.shape[2:]), pad_value(name))
