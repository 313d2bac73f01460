"""Split an iteration's rows into update epochs, minibatches and micro-batches with loss weights.

An iteration makes `update_epochs` epochs over its rows. Each epoch is split into `num_minibatches` minibatches, one
optimiser step each, and each minibatch into as many micro-batches as Lightning accumulates. The number of micro-batches
is therefore known before the rows are, whatever their number, and is the same on all ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.rng import derive_rng
from mmrl.distributed import parallel
from mmrl.distributed.sequence_group import ALONE
from mmrl.objectives.weighting import Weighting
from mmrl.ops.masked import last_inside
from mmrl.transforms.rows.shared_rows import SharedRows


def micro_batches(batch: Batch, weighting: Weighting, **cut: Any) -> Iterator[Batch]:
    """Yield update_epochs * num_minibatches * accumulate micro-batches with their `loss_weights` column."""
    for epoch in split_update_epochs(batch, weighting, **cut):
        yield from epoch


def split_update_epochs(
    batch: Batch,
    weighting: Weighting,
    *,
    update_epochs: int,
    num_minibatches: int,
    accumulate: int,
    seed: int,
    iteration: int,
    device: torch.device,
    whole_groups: bool = False,
    shared: SharedRows | None = None,
) -> Iterator[UpdateEpoch]:
    """Yield the update epochs, each with num_minibatches * accumulate micro-batches; whole groups stay in one of them.

    The cut is a permutation of the rows of all ranks, keyed by what a row is and not by where it was made: the same
    rows meet in the same minibatch on one process and on many.
    """
    batch = zero_padding(batch)
    # rows of no group only take part in collectives: they follow the others and are in no minibatch
    in_group = batch["group"].numpy() >= 0
    real, idle = np.flatnonzero(in_group), np.flatnonzero(~in_group)
    # units that stay in one minibatch, of the rows of all ranks: groups, or single rows
    order, groups = _global_order(batch.select(torch.from_numpy(real)))
    unit = np.unique(groups, return_inverse=True)[1] if whole_groups else np.arange(len(groups))
    units = int(unit.max()) + 1 if len(unit) else 0
    # number of units of each minibatch, rounded up
    starts = -(np.arange(num_minibatches + 1) * -units // num_minibatches)
    for number in range(update_epochs):
        permuted_unit = derive_rng(seed, "window", iteration, number).permutation(units)[unit]
        place = permuted_unit.argsort(kind="stable").argsort()[order]  # position of each local row among all rows
        nearest = place.argsort()
        permuted = batch.select(torch.from_numpy(np.concatenate([real[nearest], idle])))
        cuts = np.searchsorted(permuted_unit[order][nearest], starts).tolist()
        yield UpdateEpoch(permuted, weighting, cuts, accumulate, device, whole_groups, shared)


class UpdateEpoch:
    """One epoch over all rows, split into minibatches; iterating gives their micro-batches.

    Args:
        batch: the rows in the order of the minibatches, then a row of no minibatch where a rank has no others.
        weighting: how choices share the loss of a minibatch.
        cuts: the first row of each minibatch, and the number of rows.
        accumulate: micro-batches of a minibatch.
        device: where sums over all processes are made.
        whole_groups: keep the rows of a group in one micro-batch.
        shared: the processes that learn from the rows of all of them; None for this one alone.
    """

    def __init__(
        self,
        batch: Batch,
        weighting: Weighting,
        cuts: list[int],
        accumulate: int,
        device: torch.device,
        whole_groups: bool = False,
        shared: SharedRows | None = None,
    ):
        self.batch, self.weighting, self.cuts, self.accumulate, self.device = batch, weighting, cuts, accumulate, device
        self.whole_groups, self.shared = whole_groups, shared or SharedRows(ALONE)

    def __iter__(self) -> Iterator[Batch]:
        _, size = parallel.rank_and_size()
        sizes = [stop - start for start, stop in pairwise(self.cuts)]
        for part, _ in zip(self.batch.cut([*sizes, self.batch.rows - self.cuts[-1]]), sizes):
            weights = self.weighting(part, lambda value: parallel.total(value, self.device))
            # Lightning divides by the accumulated micro-batches, and DDP averages over the ranks, of which those of a
            # sequence group have the same rows
            part["loss_weights"] = weights * (self.accumulate * (size // self.shared.group.size))
            part, _ = self.shared.gather(part)
            whole = self.accumulate == 1 and part.rows > 0
            for piece in [None] if whole else split_by_cost(part, self.accumulate, self.whole_groups):
                yield part if piece is None else part.select(piece) if len(piece) else self._idle()

    def _idle(self) -> Batch:
        """Return rows with loss weight 0, so that a rank without rows takes part in collectives."""
        row = self.batch.select(torch.zeros(1, dtype=torch.long))
        return self.shared.gather(row.with_columns(loss_weights=torch.zeros(row["action_mask"].shape)))[0]


def split_by_cost(batch: Batch, count: int, whole_groups: bool = False) -> list[Tensor]:
    """Split the rows of a minibatch into parts of similar cost in tokens, each in the minibatch's order.

    Rows of one prompt stay together, since a policy may read it once, unless they are more than an equal share of all
    rows: parts are there to save memory. The costliest unit goes first, always to the part that has least. Groups that
    have to be whole are not parted, however large.
    """
    prompt = batch["group" if whole_groups else "prompt_id"].numpy()
    prompt_length = batch["prompt_length"].numpy()
    choices = last_inside(batch.score_mask).numpy()  # tokens between choices are computed too

    def cost(unit: np.ndarray) -> int:
        return int(prompt_length[unit[0]] + choices[unit].sum()) or 1

    # units: the rows of a prompt, in pieces of at most an equal share
    most = batch.rows if whole_groups else max(math.ceil(batch.rows / count), 1)
    whole = [np.flatnonzero(prompt == number) for number in dict.fromkeys(prompt.tolist())]
    units = [part for unit in whole for part in np.array_split(unit, math.ceil(len(unit) / max(most, 1)))]
    # longest processing time first: the next unit goes to the part with the least load
    parts: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for unit in sorted(units, key=cost, reverse=True):
        least = loads.index(min(loads))
        parts[least] += unit.tolist()
        loads[least] += cost(unit)
    return [torch.tensor(sorted(part), dtype=torch.long) for part in parts]


def zero_padding(batch: Batch) -> Batch:
    """Set masked entries of every real [N, T] column to 0, so that values in padding cannot affect the loss."""
    mask = batch.score_mask
    filled = {
        name: torch.where(mask, column, 0)
        for name, column in batch.items()
        if isinstance(column, Tensor)
        and column.is_floating_point()
        and column.shape == mask.shape
        and not name.startswith(("obs.", "other."))
    }
    return batch.with_columns(**filled)


def _global_order(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Position of each local row when the rows of all ranks are sorted by (group, episode, step).

    And the group at each of those places.
    """
    rank, _ = parallel.rank_and_size()
    keys = np.stack([batch[name].numpy() for name in ("step", "episode", "group")])
    # episode numbers are local, but all episodes of a group live on one rank, so the order within a group is global
    everyone = parallel.gather([(rank, keys)])
    owner = np.concatenate([np.full(part.shape[1], number) for number, part in everyone])
    every = np.concatenate([part for _, part in everyone], axis=1)
    ranked = np.lexsort(every)  # stable, the last key counts first
    place = np.empty(len(ranked), dtype=np.int64)
    place[ranked] = np.arange(len(ranked))
    return place[owner == rank], every[2][ranked]
