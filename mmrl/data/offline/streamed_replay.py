"""Replay buffer whose transitions stay on disk, for recordings that are larger than the memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.data.offline.row_file import RowFile
from mmrl.data.replay_buffer import ReplayBuffer, RingBuffer, sample_transitions


class StreamedReplay(ReplayBuffer):
    """The replay buffer of a recording, of which one byte per row is in memory and the rest in a file.

    The draw is that of `ReplayBuffer`: every transition is as probable as every other, with replacement, over the whole
    recording. No block is shuffled, so that batches have no bias; each drawn row is one read of the file. Every row of
    the recording is stored, whatever the capacity.

    Args:
        replay: the configured buffer: its batch size, discount factor, steps and columns.
        folder: where the file lies.
    """

    def __init__(self, replay: ReplayBuffer, folder: Path):
        super().__init__(2**62, replay.batch_size, replay.gamma, replay.n_steps, replay.extra_columns)
        self.rows = RowFile(folder)
        self._kinds = np.zeros(2**12, np.uint8)  # kind of each row, the first `rows.size`

    def add(self, rows: Batch, final: Batch) -> None:
        if not rows:
            return
        columns = self.build_rows(rows, final)
        size, self.num_transitions = self.rows.size, self.num_transitions + rows.rows
        self.rows.append(columns)
        if self.rows.size > len(self._kinds):
            self._kinds = np.resize(self._kinds, max(self.rows.size, len(self._kinds) * 3 // 2))
        self._kinds[size : self.rows.size] = columns["end"].numpy()

    def sample(self, updates: int, rng: np.random.Generator) -> Batch:
        kinds = torch.from_numpy(self._kinds)
        index = sample_transitions(kinds, self.rows.size, updates * self.batch_size, rng)
        return Batch(
            {name: column.unflatten(0, (updates, self.batch_size)) for name, column in self.read(index).items()}
        )

    def read(self, index: Tensor) -> dict[str, Tensor]:
        """Return the columns of a sample for these transitions: read each with the rows that its return reaches."""
        width = self.n_steps + 1
        windows = RingBuffer(len(index) * width)
        windows.columns = self.rows.read(index, width)
        in_memory = ReplayBuffer(windows.capacity, self.batch_size, self.gamma, self.n_steps, self.extra_columns)
        in_memory.storage = windows
        return in_memory.read(torch.arange(len(index)) * width)

    def metrics(self) -> dict[str, float]:
        """Metrics: number of rows, GiB in memory, and GiB on disk."""
        sizes = {"replay/gib": self._kinds.nbytes, "replay/disk_gib": self.rows.bytes}
        return {"replay/rows": float(self.rows.size)} | {name: size / 2**30 for name, size in sizes.items()}

    def close(self) -> None:
        """Remove the file, after which the buffer is empty; a later fit fills another one."""
        self.rows.close()
        self.num_transitions = 0

    def state_dict(self) -> dict[str, Any]:
        raise NotImplementedError("a recording on disk is read again from its dataset, and no checkpoint holds it")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        raise ValueError(
            "data.on_disk: the checkpoint holds transitions, of a run that had them in memory; resume it with "
            "data.on_disk=false"
        )
