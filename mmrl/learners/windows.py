"""From an iteration's rows to weighted micro-batches.

An iteration makes `passes` passes over its rows; each pass is cut into `updates` optimiser windows, and each window
into as many micro-batches as Lightning accumulates. The number of micro-batches is therefore known before the rows
are, whatever their number, and is the same on all ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from mmrl import parallel
from mmrl.batch import Batch
from mmrl.objectives.weighting import Weighting
from mmrl.ops.masked import last_inside
from mmrl.rng import derived_rng


def micro_batches(
    batch: Batch,
    weighting: Weighting,
    *,
    passes: int,
    updates: int,
    accumulate: int,
    seed: int,
    iteration: int,
    device: torch.device,
) -> Iterator[Batch]:
    """Yield passes * updates * accumulate micro-batches with their `weights` column.

    The cut is a permutation of the rows of all ranks, keyed by what a row is and not by where it was made: the same
    rows meet in the same window on one process and on many.
    """
    batch = zero_filled(batch)
    order, count = _global_order(batch)
    _, size = parallel.rank_and_size()
    for number in range(passes):
        permutation = derived_rng(seed, "window", iteration, number).permutation(count)
        place = torch.from_numpy(permutation[order])  # of each local row among all rows
        for window in range(updates):
            inside = place * updates // count == window
            index = inside.nonzero().flatten()
            index = index[place[index].argsort()]
            part = batch.select(index)
            weights = weighting(part, lambda value: parallel.total(value, device))
            # Lightning divides by the accumulated micro-batches, and DDP averages over the ranks
            part = part.with_columns(weights=weights * (accumulate * size))
            for piece in shares(part, accumulate):
                yield part.select(piece) if len(piece) else _idle(batch)


def shares(batch: Batch, count: int) -> list[Tensor]:
    """The rows of a window in that many parts of about the same cost in tokens, each in the window's order.

    Rows of one prompt stay together, since a policy may read it once, unless they are more than an equal share of all
    rows: parts are there to save memory. The costliest unit goes first, always to the part that has least.
    """
    prompt, context, mask = batch["prompt"].numpy(), batch["context"].numpy(), batch["mask"]
    choices = last_inside(mask).numpy()  # forced ones between are read too

    def cost(unit: np.ndarray) -> int:
        return int(context[unit[0]] + choices[unit].sum()) or 1

    most = max(math.ceil(batch.rows / count), 1)
    whole = [np.flatnonzero(prompt == number) for number in dict.fromkeys(prompt.tolist())]
    units = [part for unit in whole for part in np.array_split(unit, math.ceil(len(unit) / most))]
    parts: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for unit in sorted(units, key=cost, reverse=True):
        least = loads.index(min(loads))
        parts[least] += unit.tolist()
        loads[least] += cost(unit)
    return [torch.tensor(sorted(part), dtype=torch.long) for part in parts]


def zero_filled(batch: Batch) -> Batch:
    """Entries outside the mask set to zero in every [N, T] real column, so that nothing can leak from padding."""
    mask = batch["mask"]
    filled = {
        name: torch.where(mask, column, 0)
        for name, column in batch.items()
        if isinstance(column, Tensor)
        and column.is_floating_point()
        and column.shape == mask.shape
        and not name.startswith("obs.")
    }
    return batch.with_columns(**filled)


def _global_order(batch: Batch) -> tuple[np.ndarray, int]:
    """The place of each local row when the rows of all ranks are sorted by (group, attempt order, step)."""
    keys = list(zip(batch["group"].tolist(), batch["episode"].tolist(), batch["step"].tolist()))
    rank, _ = parallel.rank_and_size()
    # episode numbers are local, but all episodes of a group live on one rank, so the order within a group is global
    everyone = parallel.gathered([(group, episode, step, rank, i) for i, (group, episode, step) in enumerate(keys)])
    ranked = sorted(everyone)
    place = {(owner, i): position for position, (_, _, _, owner, i) in enumerate(ranked)}
    return np.array([place[rank, i] for i in range(len(keys))]), len(everyone)


def _idle(batch: Batch) -> Batch:
    """One row that weighs nothing: keeps collectives aligned when this rank has no row left."""
    row = batch.select(torch.zeros(1, dtype=torch.long))
    return row.with_columns(weights=torch.zeros(row["mask"].shape))
