"""Replay buffer of several processes: each stores the transitions of its own environments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.data.replay_buffer import FINAL, TERMINATED, ReplayBuffer, RingBuffer, check_capacity, sample_transitions
from mmrl.distributed import parallel

SLACK = 1 / 16  # of a process's share of the capacity, so that unequal shares rarely ask for a larger one


class SharedReplayBuffer(ReplayBuffer):
    """The replay buffer of one process, whose rows are stored by the processes that collected them.

    All processes know the order of all rows, which is that in which one process would have stored them: each sample is
    drawn from that order with the same random numbers in every process, and each process reads the rows that it stores.
    Rows are overwritten in that order too. No observation is communicated. Every method is collective.

    Args:
        replay: the configured buffer; `capacity` and `batch_size` are those of all processes together.
        device: where tensors are for communication.
    """

    def __init__(self, replay: ReplayBuffer, device: torch.device):
        super().__init__(replay.capacity, replay.batch_size, replay.gamma, replay.n_steps, replay.extra_columns)
        self.rank, self.size = parallel.rank_and_size()
        self.device = device
        # of all rows: kind, process, and number among the rows that this process has stored (-1: another's row)
        self.order = RingBuffer(self.capacity)
        self.stored = 0  # rows that this process has stored so far; row number i is at place i modulo the capacity

    def add(self, rows: Batch, final: Batch) -> None:
        """Append the rows of all processes in the order of their groups. Collective.

        Args:
            rows: this process's episodes or segments, in the order of "group"; an empty batch for none.
            final: as in `ReplayBuffer.add`.
        """
        columns = self.build_rows(rows, final) if rows else {}
        end = columns.get("end", torch.zeros(0, dtype=torch.uint8))
        group = np.zeros(len(end), dtype=np.int64)
        is_final = (end == FINAL).numpy()
        if rows:
            group[~is_final] = rows["group"].numpy()
            group[is_final] = group[np.flatnonzero(is_final) - 1]  # it follows its segment
        empty = {name: column[:0] for name, column in columns.items()}
        everyone = parallel.gather([(group, end.numpy(), empty)])
        owner = np.repeat(np.arange(self.size), [len(part) for part, _, _ in everyone])
        order = np.concatenate([part for part, _, _ in everyone]).argsort(kind="stable")
        ends = np.concatenate([part for _, part, _ in everyone])[order]
        self._write(torch.from_numpy(ends), torch.from_numpy(owner[order]), columns or _first(everyone))
        self.num_transitions += int((ends != FINAL).sum())

    def _write(self, end: Tensor, owner: Tensor, columns: Mapping[str, Tensor]) -> None:
        """Append rows of all processes, of which this one stores `columns`."""
        if not columns:  # no process has rows
            return
        mask = owner == self.rank
        number = torch.where(mask, self.stored + mask.cumsum(0) - 1, -1)
        self.order.write({"end": end, "owner": owner.short(), "number": number})
        owned = int((self.order.columns["owner"][: self.order.size] == self.rank).sum())
        if not self.storage.columns:
            share = self.capacity * int(mask.sum()) / max(len(mask), 1)
            self._allocate(max(owned, math.ceil(share * (1 + SLACK))))
        elif owned > self.storage.capacity:
            self._allocate(math.ceil(owned * (1 + SLACK)))
        self.storage.write(columns)
        self.stored += int(mask.sum())

    def _allocate(self, capacity: int) -> None:
        """Make room for so many rows of this process, and keep those that are stored."""
        old, new = self.storage, RingBuffer(min(max(capacity, 1), self.capacity))
        rows = torch.arange(self.stored - old.size, self.stored)
        new.head = (self.stored - old.size) % new.capacity
        if old.columns:
            new.write({name: column[rows % old.capacity] for name, column in old.columns.items()})
        self.storage = new

    def sample(self, updates: int, rng: np.random.Generator) -> Batch:
        """Sample the batches of several gradient steps: columns [updates, rows, ...] of the rows of this process.

        As many rows as the update has that has most of them, and at least one. The column `place` is the place of a
        row in its batch of `batch_size` rows; -1 in rows that fill up an update, whose `action_mask` is False.

        Args:
            updates: number of gradient steps.
            rng: equal in all processes.
        """
        index = sample_transitions(self.order.columns["end"], self.order.size, updates * self.batch_size, rng)
        number = self.order.columns["number"][index].view(updates, self.batch_size)
        mask = number >= 0
        width = max(int(mask.sum(1).max()), 1)
        place = mask.byte().sort(dim=1, descending=True, stable=True).indices[:, :width]
        filled = mask.gather(1, place)
        slot = torch.where(filled, number.gather(1, place) % self.storage.capacity, 0)
        rows = {name: column.unflatten(0, (updates, width)) for name, column in self.read(slot.flatten()).items()}
        rows["action_mask"] = rows["action_mask"] & filled[..., None]
        return Batch(rows, place=torch.where(filled, place, -1))

    def metrics(self) -> dict[str, float]:
        """Metrics of all processes: number of rows in the buffer, and memory of a full buffer."""
        row = self.storage.bytes / self.storage.capacity
        return {"replay/rows": float(self.order.size), "replay/gib": row * self.capacity / 2**30}

    # ---------------------------------------------------------------- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Return on process 0 the state of one process's buffer, and the process that stored each row. Collective.

        Process 0 receives the rows of the others, so that its memory has to hold all of them.
        """
        filled = self.order.size
        owner = self.order.columns["owner"][:filled] if filled else torch.zeros(0, dtype=torch.short)
        by_age = self._by_age(filled, self.order.head)
        local_rows = by_age[owner[by_age] == self.rank]
        slots = self.order.columns["number"][local_rows] % self.storage.capacity if filled else local_rows
        columns = {}
        for name, column in sorted(self.storage.columns.items()):
            parts = parallel.collect_on_first(column[slots], self.device)
            if parts is not None:
                whole = torch.zeros(filled, *column.shape[1:], dtype=column.dtype)
                for rank, part in enumerate(parts):
                    whole[by_age[owner[by_age] == rank]] = part
                columns[name] = whole
        storage = {"capacity": self.capacity, "head": self.order.head, "size": filled, "columns": columns}
        return {
            "storage": storage,
            "num_transitions": self.num_transitions,
            "owner": owner.clone(),
            "processes": self.size,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take this process's rows; those of another number of processes are shared out by segments."""
        whole = state["storage"]
        check_capacity(self.capacity, whole["capacity"])
        self.num_transitions = state["num_transitions"]
        self.order, self.storage, self.stored = RingBuffer(self.capacity), RingBuffer(self.capacity), 0
        if not whole["size"]:
            return
        by_age = self._by_age(whole["size"], whole["head"])
        end = whole["columns"]["end"][by_age]
        if state.get("processes") == self.size:
            owner = state["owner"][by_age].long()
        else:
            closes = ((end == TERMINATED) | (end == FINAL)).long()
            owner = (closes.cumsum(0) - closes) % self.size
        local_rows = by_age[owner == self.rank]
        # rows keep their places in the order, from which samples are drawn
        self.order.head = (whole["head"] - whole["size"]) % self.capacity
        self._write(end, owner, {name: column[local_rows] for name, column in whole["columns"].items()})

    def _by_age(self, filled: int, head: int) -> Tensor:
        """Places of the filled rows in the order, the oldest first."""
        return (head - filled + torch.arange(filled)) % self.capacity


def _first(everyone: list[tuple[Any, Any, dict[str, Tensor]]]) -> dict[str, Tensor]:
    """Columns without rows of the first process that has some, for a process without any."""
    return next((columns for _, _, columns in everyone if columns), {})
