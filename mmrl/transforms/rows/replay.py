"""Replay rows of earlier iterations: a buffer of groups that the policy failed or seldom solved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from mmrl.core.batch import Batch
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context
from mmrl.distributed import parallel
from mmrl.transforms.rows.base import RowTransform
from mmrl.transforms.rows.concatenation import concatenate, copy_rows, from_plain, to_plain

STRIDE = 2**32  # groups of one iteration are numbered below it

Key = tuple[int, int]
"""The iteration that sampled a group, and its number in it: the same on any number of processes."""


class ReplayRows(RowTransform):
    """Adds groups of earlier iterations to those of this one, with the columns that they had then.

    Rows keep their `policy_version`, `behavior_logprobs`, `old_logprobs` and advantages, so that importance ratios are
    those to the policy that sampled them; use it with a term that clips them. A buffer stores the groups whose mean
    reward lies in [min_reward, max_reward]: those that the policy failed, for example. It draws `groups` of them
    in every iteration, without replacement, and they stay in the buffer until they are older than `max_age`. With
    several processes each keeps the rows that it sampled, and the draw is that of one process.

    Args:
        groups: drawn in an iteration, over all processes. A schedule can end the replay.
        capacity: groups in the buffer, over all processes; the oldest leave first.
        max_age: iterations after which a group leaves the buffer.
        min_reward: smallest mean reward of a group to store; None for any.
        max_reward: largest mean reward of a group to store; None for any.
    """

    def __init__(
        self,
        groups: int = 8,
        capacity: int = 256,
        max_age: int = 4,
        min_reward: float | None = None,
        max_reward: float | None = None,
    ):
        for name, value, least in (("groups", groups, 0), ("capacity", capacity, 1), ("max_age", max_age, 1)):
            if value < least:
                raise ValueError(f"replay_rows.{name} must be at least {least}, got {value}")
        if min_reward is not None and max_reward is not None and min_reward > max_reward:
            raise ValueError(f"replay_rows: min_reward must be <= max_reward, got {min_reward} and {max_reward}")
        self.groups, self.capacity, self.oldest = groups, capacity, max_age
        self.min_reward, self.max_reward = min_reward, max_reward
        self.buffer: dict[Key, Batch] = {}  # this process's groups

    @property
    def max_age(self) -> int:
        return self.oldest

    def reads(self) -> frozenset[str]:
        return frozenset({"group", "episode", "step", "episode_reward", "policy_version"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        self.buffer = {key: rows for key, rows in self.buffer.items() if ctx.iteration - key[0] <= self.oldest}
        everyone = sorted(ctx.collector.gather(list(self.buffer)))
        indices = derive_rng(ctx.seed, "replay_rows", ctx.iteration).permutation(len(everyone))[: self.groups]
        keys = sorted(everyone[i] for i in indices)
        replayed = [self._replay(key) for key in keys if key in self.buffer]
        self._store(batch, ctx)
        return concatenate([batch, *replayed], ctx.policy) if replayed else batch

    def _replay(self, key: Key) -> Batch:
        """Return the rows of a group, with a group number that no other iteration has."""
        rows = self.buffer[key]
        return rows.with_columns(group=torch.full_like(rows["group"], (1 + key[0]) * STRIDE + key[1]))

    def _store(self, batch: Batch, ctx: Context) -> None:
        for group in batch["group"].unique().tolist():
            index = (batch["group"] == group).nonzero().flatten()
            first = index[batch["step"][index] == 0]  # one row of each episode
            mean = float(batch["episode_reward"][first].mean()) if len(first) else float("nan")
            if group < STRIDE and self._is_wanted(mean):
                self.buffer[(ctx.iteration, group)] = copy_rows(batch, index)
        newest = sorted(ctx.collector.gather(list(self.buffer)))[-self.capacity :]
        self.buffer = {key: self.buffer[key] for key in newest if key in self.buffer}

    def _is_wanted(self, mean: float) -> bool:
        above = self.min_reward is None or mean >= self.min_reward
        return above and (self.max_reward is None or mean <= self.max_reward)

    def state_dict(self) -> dict[str, Any]:
        """The groups of all processes, in order."""
        groups = [(list(key), to_plain(rows)) for key, rows in self.buffer.items()]
        return {"groups": sorted(parallel.gather(groups), key=lambda pair: pair[0])}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take this process's share of the groups, of any number of processes that saved them."""
        rank, size = parallel.rank_and_size()
        self.buffer = {tuple(key): from_plain(rows) for key, rows in state.get("groups", [])[rank::size]}
