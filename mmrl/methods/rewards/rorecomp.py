"""RoRecomp: train on short correct and long wrong completions, and replay the others from a buffer at times.

RoRecomp: Enhancing Reasoning Efficiency via Rollout Response Recomposition in Reinforcement Learning, 2025,
arXiv:2509.25958.

- which rows come first: `select_priority`
- priority rows of an iteration, and compensation rows of the buffer: `RecomposeRows`
"""

from __future__ import annotations

import math

import numpy as np
import torch

from mmrl.core.batch import Batch
from mmrl.core.errors import check_fraction, check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context
from mmrl.transforms.rows.concatenation import concatenate, copy_rows
from mmrl.transforms.rows.replay import STRIDE, ReplayRows


def select_priority(
    correct: np.ndarray,  # [N] bool
    length: np.ndarray,  # [N] choices
    fraction: float,
) -> np.ndarray:  # [N] bool
    """The shortest of the correct rows and the longest of the wrong ones, a fraction of each, rounded up.

    Of rows of one length the first are taken. Source: RoRecomp, 2025, priority batches, arXiv:2509.25958.
    """
    priority = np.zeros(len(correct), dtype=bool)
    for kind, key in ((correct, length), (~correct, -length)):
        rows = np.flatnonzero(kind)
        order = rows[np.argsort(key[rows], kind="stable")]
        priority[order[: math.ceil(fraction * len(rows))]] = True
    return priority


class RecomposeRows(ReplayRows):
    """Keeps short correct and long wrong rows, stores the others in a replay buffer, and adds buffered rows at times.

    Rows keep the advantages of their whole group and the log-probs of the policy that sampled them. With `probability`,
    and whenever the buffer is full, the oldest groups of the buffer are added until they have as many rows as the
    iteration's own; they leave it. It is for completions of one row. Source: RoRecomp, 2025, arXiv:2509.25958.

    Args:
        fraction: of the correct and of the wrong rows that are kept at once.
        probability: of adding buffered rows in an iteration. A schedule can lower it to 0.
        capacity: groups in the buffer, over all processes; the oldest leave first. With max_age=2 no more than the
            groups of two iterations wait, so that a buffer for more is never full.
        max_age: iterations after which a group leaves the buffer.
        success_threshold: smallest reward of a correct completion.
    """

    def __init__(
        self,
        fraction: float = 0.5,
        probability: float = 1.0,
        capacity: int = 4096,
        max_age: int = 2,
        success_threshold: float = 1.0,
    ):
        check_interval("recompose_rows", "(0, 1]", fraction=fraction)
        check_fraction("recompose_rows", probability=probability)
        super().__init__(groups=0, capacity=capacity, max_age=max_age)
        self.fraction, self.probability, self.success_threshold = fraction, probability, success_threshold

    def reads(self) -> frozenset[str]:
        return super().reads() | {"action_mask"}

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        self.buffer = {key: rows for key, rows in self.buffer.items() if ctx.iteration - key[0] <= self.oldest}
        # (rows,) bool of this process, and the number of priority rows of all processes
        priority, count = self._select(batch, ctx)
        waiting = sorted(ctx.collector.gather([(key, rows.rows) for key, rows in self.buffer.items()]))
        adds_buffer = derive_rng(ctx.seed, "recompose_rows", ctx.iteration).random() < self.probability
        # oldest groups first, until as many rows as priority rows; every process counts all groups and adds its own
        replays: list[Batch] = []
        for key, rows in waiting if adds_buffer or len(waiting) >= self.capacity else []:
            if count <= 0:
                break
            count -= rows
            if key in self.buffer:
                replays.append(self._replay(key))
                del self.buffer[key]
        self._store_rest(batch, ~priority, ctx)
        priority_rows = batch.select(priority.nonzero().flatten())
        return concatenate([priority_rows, *replays], ctx.policy) if replays else priority_rows

    def _select(self, batch: Batch, ctx: Context) -> tuple[torch.Tensor, int]:
        """[N] bool, this process's priority rows, and how many all processes have."""
        if (batch["step"] > 0).any():
            raise ValueError("recompose_rows compares completions of one row; leave it out of data.rows here")
        correct = batch["episode_reward"] >= self.success_threshold
        columns = correct, batch["action_mask"].sum(1), batch["group"], batch["episode"]
        # (4, rows) integers of each process, concatenated over processes
        parts = ctx.collector.gather([(ctx.rank, np.stack([column.numpy().astype(np.int64) for column in columns]))])
        owner = np.concatenate([np.full(part.shape[1], rank) for rank, part in parts])
        right, length, group, episode = np.concatenate([part for _, part in parts], axis=1)
        order = np.lexsort((episode, group))  # the same on any number of processes
        priority = np.zeros(len(order), dtype=bool)
        priority[order] = select_priority(right[order] > 0, length[order], self.fraction)
        return torch.from_numpy(priority[owner == ctx.rank]), int(priority.sum())

    def _store_rest(self, batch: Batch, rest: torch.Tensor, ctx: Context) -> None:
        for group in batch["group"][rest].unique().tolist():
            if group < STRIDE:
                index = (rest & (batch["group"] == group)).nonzero().flatten()
                self.buffer[(ctx.iteration, group)] = copy_rows(batch, index)
        newest = sorted(ctx.collector.gather(list(self.buffer)))[-self.capacity :]
        self.buffer = {key: self.buffer[key] for key in newest if key in self.buffer}
