"""The rows of one process in the batches of off-policy updates that several processes learn from together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.distributed import parallel


@dataclass(frozen=True)
class ProcessRows:
    """This process's rows of a batch. A process without rows has one of loss weight 0, so that it takes part.

    Args:
        count: number of rows of this process.
        total: number of rows of the batch, over all processes.
        place: [max(count, 1)] place of each row in the batch.
        processes: number of processes.
    """

    count: int
    total: int
    place: Tensor
    processes: int

    def draw(self, normal: Callable[..., Tensor], rows: int, *shape: int) -> Tensor:
        """Draw what one process would draw for all rows of the batch, and return this process's part."""
        return normal(self.total, *shape)[self.place]

    def scale(self, mean: Tensor) -> Tensor:
        """Scale a mean over this process's rows, so that the mean over processes is that over all rows."""
        return mean * (self.count * self.processes / self.total)


def split_updates(batches: Batch, device: torch.device) -> Iterator[tuple[Batch, ProcessRows | None]]:
    """Yield the batch of each update, columns [rows, ...]; and the rows of this process, None in a run of one process.

    Collective.

    Args:
        batches: columns [updates, rows, ...]. The column `place` of several processes is -1 in rows that fill up an
            update.
        device: where tensors are for communication.
    """
    if "place" not in batches:
        for number in range(batches.rows):
            yield Batch({name: column[number] for name, column in batches.items()}), None
        return
    counts = (batches["place"] >= 0).sum(1)
    pairs = zip(counts.tolist(), parallel.total(counts, device).tolist())
    for number, (count, total) in enumerate(pairs):
        batch = Batch({name: column[number, : max(count, 1)] for name, column in batches.items()})
        yield batch, ProcessRows(count, total, batch["place"].clamp(min=0), parallel.rank_and_size()[1])
