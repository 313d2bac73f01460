"""Dense side of the project: a dict of columns that share their first axis, the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass
class Ragged:
    """A column whose rows own different numbers of items, stored end to end (image patches, for example)."""

    values: Tensor  # [sum(lengths), ...]
    lengths: Tensor  # [N] int64

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Tensor) -> Ragged:
        parts = self.values.split(self.lengths.tolist())
        rows = torch.arange(len(self.lengths))[index].tolist()
        values = torch.cat([parts[row] for row in rows]) if rows else self.values[:0]
        return Ragged(values, self.lengths[index.to(self.lengths.device)])

    def split(self, sizes: list[int]) -> list[Ragged]:
        """Consecutive pieces of these numbers of rows."""
        lengths = self.lengths.split(sizes)
        return [Ragged(*part) for part in zip(self.values.split([int(part.sum()) for part in lengths]), lengths)]

    def to(self, *args: Any, **kwargs: Any) -> Ragged:
        return Ragged(self.values.to(*args, **kwargs), self.lengths)

    @property
    def device(self) -> torch.device:
        return self.values.device


class Batch(dict[str, Any]):  # Tensor or Ragged: a reader knows which, a type checker would ask each time
    """Named columns over the same N rows. Lightning moves it between devices and keeps the type."""

    @property
    def rows(self) -> int:
        """N; every column has that many rows."""
        sizes = {name: len(column) for name, column in self.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"columns of one batch differ in their number of rows: {sizes}")
        return next(iter(sizes.values()), 0)

    def require(self, names: Iterable[str], part: str) -> None:
        """Refuse with the column and the part named when something that the part reads is missing."""
        missing = sorted(set(names) - set(self))
        if missing:
            raise KeyError(f"{part} reads {missing}, which the batch does not have; it has {sorted(self)}")

    def select(self, index: Tensor) -> Batch:
        """Some rows, in the order given."""
        return Batch({name: column[index] for name, column in self.items()})

    def cut(self, sizes: Sequence[int]) -> list[Batch]:
        """Consecutive pieces of these numbers of rows, which share memory with this batch where columns are tensors."""
        pieces = zip(*(column.split(list(sizes)) for column in self.values()))
        return [Batch(zip(self, piece)) for piece in pieces]

    def with_columns(self, **columns: Tensor | Ragged) -> Batch:
        """A new batch with columns added or replaced."""
        return Batch({**self, **columns})

    @property
    def read(self) -> Tensor:
        """[N, T] bool: what has to be scored, the policy's choices, what is taught within them, probes after them."""
        read = self["mask"]
        for name in ("taught", "probe"):
            if name in self:
                read = read | self[name]
        return read

    def under(self, context: str) -> Batch:
        """The same choices in another context: its columns, other.<context>.*, are the policy's inputs."""
        prefix = f"other.{context}."
        there = {name.removeprefix(prefix): column for name, column in self.items() if name.startswith(prefix)}
        if not there:
            raise KeyError(f"the batch has no context {context!r}: an entry of data.episodes has to give it")
        own = {name: column for name, column in self.items() if not name.startswith(("obs.", "other."))}
        shared: dict[str, Any] = {name: there.pop(name) for name in ("prompt", "context") if name in there}
        return Batch({**own, **shared, **{f"obs.{name}": column for name, column in there.items()}})

    def split(self, size: int) -> list[Batch]:
        """Consecutive pieces of at most `size` rows."""
        return self.cut([min(size, self.rows - start) for start in range(0, self.rows, size)])

    def observation(self) -> dict[str, Any]:
        """The policy's inputs: the columns named obs.*, without the prefix."""
        return {name[4:]: column for name, column in self.items() if name.startswith("obs.")}


def pad_stack(rows: Sequence[Tensor], value: float | bool = 0, left: bool = False) -> Tensor:
    """Rows of different lengths (and trailing sizes) as one tensor, filled up with `value` at the end or the start."""
    trailing = [max(row.shape[axis] for row in rows) for axis in range(rows[0].dim())]
    out = rows[0].new_full((len(rows), *trailing), value)
    for position, row in enumerate(rows):
        region: list[Any] = [slice(None, size) for size in row.shape]
        if left and row.dim():
            region[0] = slice(trailing[0] - row.shape[0], None)
        out[(position, *region)] = row
    return out
