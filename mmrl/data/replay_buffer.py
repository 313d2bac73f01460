"""Replay buffer: uniform sampling of past transitions, with n-step returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least, check_fraction


class RingBuffer:
    """Named columns [capacity, ...], allocated for the first rows that are written.

    Args:
        capacity: rows that are stored.
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.columns: dict[str, Tensor] = {}
        self.head = 0  # position of the next row
        self.size = 0  # number of filled rows

    def write(self, rows: Mapping[str, Tensor]) -> None:
        """Append rows; of more rows than the capacity only the last ones are stored."""
        count = len(next(iter(rows.values())))
        if not self.columns:
            self.columns = {
                name: torch.zeros(self.capacity, *column.shape[1:], dtype=column.dtype) for name, column in rows.items()
            }
        self._check(rows)
        num_rows = min(count, self.capacity)
        place = (self.head + count - num_rows + torch.arange(num_rows)) % self.capacity
        for name, column in rows.items():
            self.columns[name][place] = column[count - num_rows :].to("cpu")
        self.head = (self.head + count) % self.capacity
        self.size = min(self.size + count, self.capacity)

    def _check(self, rows: Mapping[str, Tensor]) -> None:
        if rows.keys() != self.columns.keys():
            raise ValueError(f"the replay buffer has columns {sorted(self.columns)}, got {sorted(rows)}")
        for name, column in rows.items():
            mine = self.columns[name]
            if mine.shape[1:] != column.shape[1:] or mine.dtype != column.dtype:
                raise ValueError(
                    f"replay buffer column {name!r} has {mine.dtype} {tuple(mine.shape[1:])}, got {column.dtype} "
                    f"{tuple(column.shape[1:])}"
                )

    @property
    def bytes(self) -> int:
        """Memory of all columns of a full buffer, bytes."""
        return sum(column.nbytes for column in self.columns.values())

    def state_dict(self) -> dict[str, Any]:
        """State with the filled rows only."""
        columns = {name: column[: self.size].clone() for name, column in self.columns.items()}
        return {"capacity": self.capacity, "head": self.head, "size": self.size, "columns": columns}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_capacity(self.capacity, state["capacity"])
        self.head, self.size, self.columns = state["head"], state["size"], {}
        for name, column in state["columns"].items():
            self.columns[name] = torch.zeros(self.capacity, *column.shape[1:], dtype=column.dtype)
            self.columns[name][: self.size] = column


def check_capacity(capacity: int, saved: int) -> None:
    """Refuse a checkpoint whose buffer has another capacity."""
    if saved != capacity:
        raise ValueError(
            f"data.replay.capacity is {capacity}, the checkpoint's replay buffer has {saved}; resume with the same"
        )


CONTINUES, TRUNCATED, TERMINATED, FINAL = 0, 1, 2, 3
"""Kinds of stored rows: a step within an episode; a step before truncation, which a final observation follows;
a terminal step; and a final observation, which is not a transition."""


def sample_transitions(end: Tensor, size: int, count: int, rng: np.random.Generator) -> Tensor:
    """Sample rows that are transitions, uniformly with replacement.

    Args:
        end: kind of each row.
        size: number of filled rows, the first ones.
        count: of rows to sample.
        rng: drawn from.
    """
    indices: list[Tensor] = []
    while count > 0:
        index = torch.from_numpy(rng.integers(size, size=count))
        index = index[end[index] != FINAL]
        indices.append(index)
        count -= len(index)
    return torch.cat(indices)


class ReplayBuffer:
    """Buffer of the last `capacity` transitions, sampled uniformly with replacement.

    Each observation is stored once: the next transition's observation is this one's next observation. An episode that
    is truncated, by a time limit or by the end of the iteration, is closed by a row that holds its final observation
    and is never sampled, so that its value is bootstrapped; after termination the discount is 0.

    A sample has the n-step reward = sum_{k<m} gamma^k r_k and the column discount = gamma^m, with m = n, or less where
    the episode or segment ends before that. Source: Sutton and Barto, Reinforcement Learning, 2018, equation 7.1.

    Args:
        capacity: rows that are stored, the oldest being overwritten; their memory is bounded by it and reported.
        batch_size: transitions of one gradient step.
        gamma: discount factor of a reward one step later.
        n_steps: rewards that are summed before the critic's value is added.
        extra_columns: further columns that are stored.
    """

    def __init__(
        self,
        capacity: int = 1_000_000,
        batch_size: int = 256,
        gamma: float = 0.99,
        n_steps: int = 1,
        extra_columns: tuple[str, ...] = (),
    ):
        check_at_least(1, "data.replay", capacity=capacity, batch_size=batch_size, n_steps=n_steps)
        check_fraction("data.replay", gamma=gamma)
        self.capacity, self.batch_size, self.gamma, self.n_steps = capacity, batch_size, gamma, n_steps
        self.extra_columns = tuple(extra_columns)
        self.storage = RingBuffer(capacity)
        self.num_transitions = 0  # transitions added so far, including demonstrations

    def writes(self) -> frozenset[str]:
        """Names of the columns of a sample, except observations."""
        return frozenset({"action", "reward", "discount", "action_mask", *self.extra_columns})

    def add(self, rows: Batch, final: Batch) -> None:
        """Append collated rows, with the final observation after each truncated episode or segment.

        Args:
            rows: whole episodes or segments, in order; an empty batch for none.
            final: columns obs.* and "episode", one row for each of them that did not terminate, in order.
        """
        if rows:
            self.storage.write(self.build_rows(rows, final))
            self.num_transitions += rows.rows

    def build_rows(self, rows: Batch, final: Batch) -> dict[str, Tensor]:
        """Return the rows to be stored, with the arguments of `add`."""
        episode, last = rows["episode"], rows["is_last"]
        # [N] bool: rows whose episode has a final observation; last rows that need one and lack it
        closed = torch.isin(episode, final["episode"]) if len(final["episode"]) else torch.zeros_like(last)
        open_end = last & ~closed & ~rows["is_terminal"]
        if open_end.any():
            raise ValueError(
                f"episodes {episode[open_end].tolist()} neither terminated nor have a final observation; "
                "collect them with mmrl.rollouts.env.fixed_horizon.FixedHorizon"
            )
        # [N] uint8 kind of each row: CONTINUES, TRUNCATED or TERMINATED
        ends = torch.where(last & closed, TRUNCATED, CONTINUES)
        ends = torch.where(rows["is_terminal"], TERMINATED, ends).to(torch.uint8)
        # each row is shifted by the number of final observations before it
        closes = (last & closed).long()
        place = torch.arange(rows.rows) + closes.cumsum(0) - closes
        final_place = place[last & closed] + 1
        total = rows.rows + len(final_place)

        def concatenate(column: Tensor, other: Tensor | None) -> Tensor:
            out = column.new_zeros(total, *column.shape[1:])
            out[place] = column
            if other is not None and len(final_place):
                out[final_place] = other
            return out

        names = [name for name in rows if name.startswith("obs.")]
        columns = {name: concatenate(rows[name], final.get(name)) for name in names}
        columns |= {name: concatenate(rows[name], None) for name in ("action", "reward", *self.extra_columns)}
        columns["end"] = concatenate(ends, torch.full((len(final_place),), FINAL, dtype=torch.uint8))
        return columns

    def sample(self, updates: int, rng: np.random.Generator) -> Batch:
        """Sample the batches of several gradient steps: columns [updates, batch_size, ...]."""
        index = sample_transitions(self.storage.columns["end"], self.storage.size, updates * self.batch_size, rng)
        return Batch(
            {name: column.unflatten(0, (updates, self.batch_size)) for name, column in self.read(index).items()}
        )

    def read(self, index: Tensor) -> dict[str, Tensor]:
        """Return the columns of a sample for these transitions."""
        reward, discount, next_row = self._n_step(index)
        columns = self.storage.columns
        action = columns["action"][index]
        rows = {"action": action, "reward": reward, "discount": discount}
        rows["action_mask"] = torch.ones(action.shape[:2], dtype=torch.bool)
        rows |= {name: columns[name][index] for name in self.extra_columns}
        for name in columns:
            if name.startswith("obs."):
                rows |= {name: columns[name][index], f"next.{name[4:]}": columns[name][next_row]}
        return rows

    def _n_step(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute n-step rewards, the discount of the bootstrap value and the row of the next observation."""
        end, rewards = self.storage.columns["end"], self.storage.columns["reward"]
        reward, factor = torch.zeros(len(index), dtype=rewards.dtype), torch.ones(len(index), dtype=rewards.dtype)
        going, row = torch.ones(len(index), dtype=torch.bool), index
        for _ in range(self.n_steps):
            reward = reward + torch.where(going, factor * rewards[row], 0)
            factor = torch.where(going, factor * self.gamma, factor)
            factor = torch.where(going & (end[row] == TERMINATED), 0, factor)
            next_row = (row + 1) % self.storage.capacity
            last = end[row] != CONTINUES
            row = torch.where(going, next_row, row)
            going = going & ~last
        return reward, factor, row

    def metrics(self) -> dict[str, float]:
        """Metrics: number of rows in the buffer, and memory of a full buffer."""
        return {"replay/rows": float(self.storage.size), "replay/gib": self.storage.bytes / 2**30}

    def state_dict(self) -> dict[str, Any]:
        return {"storage": self.storage.state_dict(), "num_transitions": self.num_transitions}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.storage.load_state_dict(state["storage"])
        self.num_transitions = state["num_transitions"]
