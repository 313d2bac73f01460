"""Ring buffer of columns: a fixed number of rows that overwrite their oldest, with bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


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
        kept = min(count, self.capacity)
        place = (self.head + count - kept + torch.arange(kept)) % self.capacity
        for name, column in rows.items():
            self.columns[name][place] = column[count - kept :].to("cpu")
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
        if state["capacity"] != self.capacity:
            raise ValueError(
                f"data.replay.capacity is {self.capacity}, the checkpoint's replay buffer has {state['capacity']}; "
                "resume with the same"
            )
        self.head, self.size, self.columns = state["head"], state["size"], {}
        for name, column in state["columns"].items():
            self.columns[name] = torch.zeros(self.capacity, *column.shape[1:], dtype=column.dtype)
            self.columns[name][: self.size] = column
