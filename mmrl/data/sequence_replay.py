"""Replay buffer of sequences, for models with a state: chunks of episodes, each within one episode."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.columns import Column, register_columns
from mmrl.core.errors import ConfigError, check_at_least
from mmrl.data.replay_buffer import FINAL, TERMINATED, ReplayBuffer
from mmrl.data.replay_data import ReplayData
from mmrl.distributed import parallel

register_columns(
    {
        "previous_action": Column(
            "[N, T, A]", "policy units", "sequence: choice before each observation, 0 at its start"
        ),
        "previous_reward": Column("[N, T]", "reward", "sequence: reward of the decision before each observation"),
        "continues": Column("[N, T]", "1", "sequence: 0 after a terminal decision, else 1"),
        "observed": Column(
            "[N, T]", "bool", "sequence: whether there is an observation; none after a terminal decision"
        ),
    }
)
_NOT_STORED = "obs.memory"  # what the policy remembered: a sequence begins without a memory


class SequenceReplayBuffer(ReplayBuffer):
    """Buffer of the last `capacity` decisions, sampled as sequences of `chunk` observations of one episode.

    A sample has the observations `obs.*` [N, T, ...], and what led to each of them: `previous_action`,
    `previous_reward` and `continues`, which the first observation of a sequence has not (0, 0 and 1). A decision is
    drawn uniformly with replacement, then a sequence that has it and its outcome. Sequences end with the final
    observation of a truncated episode or segment, or with one that is not `observed` after a terminal decision;
    episodes that are shorter than `chunk` have `action_mask` False behind their end.

    Args:
        capacity: rows that are stored, the oldest being overwritten.
        batch_size: sequences of one gradient step.
        chunk: T, observations of a sequence, at least 2.
    """

    def __init__(self, capacity: int = 1_000_000, batch_size: int = 50, chunk: int = 50):
        super().__init__(capacity=capacity, batch_size=batch_size)
        check_at_least(2, "data.replay", chunk=chunk)
        self.chunk = chunk

    def writes(self) -> frozenset[str]:
        return frozenset({"previous_action", "previous_reward", "continues", "observed", "action_mask"})

    def build_rows(self, rows: Batch, final: Batch) -> dict[str, Tensor]:
        columns = super().build_rows(rows, final)
        return {name: column for name, column in columns.items() if name != _NOT_STORED}

    def sample(self, updates: int, rng: np.random.Generator) -> Batch:
        """Sample the sequences of several gradient steps: columns [updates, batch_size, chunk, ...]."""
        place, length = self._draw(updates * self.batch_size, rng)
        columns = self._read_sequences(place, length)
        return Batch({name: column.unflatten(0, (updates, self.batch_size)) for name, column in columns.items()})

    def _rows_in_order(self) -> Tensor:
        """Places in the storage [size] of the stored rows, the oldest first."""
        storage = self.storage
        return (storage.head - storage.size + torch.arange(storage.size)) % storage.capacity

    def _draw(self, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Draw sequences: the number of their first row, in order of age, and that of their observations, [count] each.

        The observation that a terminal decision leads to, which has no row, is counted too.
        """
        end = self.storage.columns["end"][self._rows_in_order()]
        # [size] number of the first row of each row's segment, and of the last one
        closes = (end == TERMINATED) | (end == FINAL)
        closes[-1] = True
        last_rows = closes.nonzero()[:, 0]
        segment = closes.long().cumsum(0) - closes.long()
        first_rows = torch.cat([last_rows.new_zeros(1), last_rows[:-1] + 1])
        decisions = (end != FINAL).nonzero()[:, 0]
        chosen = decisions[torch.from_numpy(rng.integers(len(decisions), size=count))]
        first, last = first_rows[segment[chosen]], last_rows[segment[chosen]]
        total = last - first + 1 + (end[last] == TERMINATED)  # observations of the segment
        # the sequence has the decision and what follows it, and ends within the segment where that is long enough
        earliest, latest = torch.maximum(first, chosen - (self.chunk - 2)), chosen
        latest = torch.minimum(latest, torch.maximum(first, first + total - self.chunk))
        earliest = torch.minimum(earliest, latest)
        share = torch.from_numpy(rng.random(count))
        start = earliest + (share * (latest - earliest + 1)).long()
        return start, torch.minimum(first + total - start, torch.tensor(self.chunk))

    def _read_sequences(self, start: Tensor, length: Tensor) -> dict[str, Tensor]:
        """Columns [S, T, ...] of sequences, with the results of `_draw`."""
        columns, order = self.storage.columns, self._rows_in_order()
        step = torch.arange(self.chunk)
        inside = step < length[:, None]  # [S, T]
        number = start[:, None] + step
        # places of the observations, and of the decisions that led to them
        row = order[number.clamp(max=self.storage.size - 1)]
        before = order[(number - 1).clamp(min=0, max=self.storage.size - 1)]
        led = inside & (step > 0)
        terminal = led & (columns["end"][before] == TERMINATED)
        observed = inside & ~terminal
        action = columns["action"][before][:, :, 0]
        sequences = {
            "previous_action": torch.where(led[..., None], action, 0),
            "previous_reward": torch.where(led, columns["reward"][before], 0),
            "continues": (~terminal).float(),
            "observed": observed,
            "action_mask": inside,
        }
        for name in columns:
            if name.startswith("obs."):
                column = columns[name][row]
                shown = observed.view(*observed.shape, *[1] * (column.dim() - 2))
                sequences[name] = torch.where(shown, column, torch.zeros((), dtype=column.dtype))
        return sequences


class SequenceReplayData(ReplayData):
    """As `ReplayData`, with a buffer of sequences; in one process."""

    def setup(self, stage: str) -> None:
        if parallel.rank_and_size()[1] > 1:
            raise ConfigError("data=sequence_replay stores whole sequences in one process: set trainer.devices=1")
        super().setup(stage)
