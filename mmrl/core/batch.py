"""Batch: a dict of columns that share their first axis, the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

import torch
from torch import Tensor


class Ragged:
    """Column whose rows have different numbers of items, such as image patches, stored end to end.

    Items that several rows have in common are stored once, and selecting rows copies none.

    Args:
        items: [sum(sizes), ...] of U different rows.
        sizes: [U] int64, how many items each of these has.
        index: [N] int64, which of them a row of the column is; None for each once, in order.
    """

    def __init__(self, items: Tensor, sizes: Tensor, index: Tensor | None = None):
        self.items, self.sizes = items, sizes
        self.index = torch.arange(len(sizes)) if index is None else index

    def __len__(self) -> int:
        return len(self.index)

    @overload
    def __getitem__(self, index: Tensor) -> Ragged: ...

    @overload
    def __getitem__(self, index: int) -> Tensor: ...

    def __getitem__(self, index: Tensor | int) -> Ragged | Tensor:
        """Select rows, or return the items of one row."""
        if isinstance(index, int):
            row = int(self.index[index])
            return self.items.narrow(0, int(self.sizes[:row].sum()), int(self.sizes[row]))
        return Ragged(self.items, self.sizes, self.index[index.to(self.index.device)])

    @property
    def lengths(self) -> Tensor:
        """[N] int64, number of items of each row."""
        return self.sizes[self.index]

    @property
    def values(self) -> Tensor:
        """[sum(lengths), ...] the items of the rows end to end; shared items are repeated."""
        if torch.equal(self.index, torch.arange(len(self.sizes))):
            return self.items
        parts = self.items.split(self.sizes.tolist())
        return torch.cat([parts[row] for row in self.index.tolist()]) if len(self) else self.items[:0]

    def split(self, sizes: list[int]) -> list[Ragged]:
        """Split into consecutive columns with these numbers of rows."""
        return [Ragged(self.items, self.sizes, part) for part in self.index.split(sizes)]

    def compact(self) -> Ragged:
        """Return the same rows, and only the items that they use."""
        used, index = self.index.unique(return_inverse=True)
        return Ragged(Ragged(self.items, self.sizes, used).values, self.sizes[used], index)

    def to(self, *args: Any, **kwargs: Any) -> Ragged:
        """Convert to another device or dtype; only items that a row uses are copied."""
        empty = self.items[:0].to(*args, **kwargs)
        if empty.device == self.items.device and empty.dtype == self.items.dtype:
            return self
        compact = self.compact()
        return Ragged(compact.items.to(*args, **kwargs), compact.sizes, compact.index)

    def cpu(self) -> Ragged:
        return self.to("cpu")

    @property
    def device(self) -> torch.device:
        return self.items.device


NO_GROUP = -1  # group of a row that takes part in collectives only, and in no minibatch


class Batch(dict[str, Any]):  # values are Tensor or Ragged; Any, because a union would need a cast at every use
    """Dictionary of columns over the same N rows. Lightning moves it between devices and keeps the type."""

    @property
    def rows(self) -> int:
        """N, the number of rows of every column."""
        sizes = {name: len(column) for name, column in self.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"columns of one batch differ in their number of rows: {sizes}")
        return next(iter(sizes.values()), 0)

    def __missing__(self, name: str) -> None:
        raise KeyError(f"the batch has no column {name!r}; it has {sorted(self)}")

    def require(self, names: Iterable[str], part: str) -> None:
        """Raise a KeyError that names the part and the columns that it reads and the batch lacks."""
        missing = sorted(set(names) - set(self))
        if missing:
            raise KeyError(f"{part} reads {missing}, which the batch does not have; it has {sorted(self)}")

    def select(self, index: Tensor) -> Batch:
        """Select rows, in the order given."""
        return Batch({name: column[index] for name, column in self.items()})

    def cut(self, sizes: Sequence[int]) -> list[Batch]:
        """Split into consecutive batches with these numbers of rows; tensor columns share memory with this batch."""
        pieces = zip(*(column.split(list(sizes)) for column in self.values()))
        return [Batch(zip(self, piece)) for piece in pieces]

    def with_columns(self, **columns: Tensor | Ragged) -> Batch:
        """Return a new batch with columns added or replaced."""
        return Batch({**self, **columns})

    @property
    def score_mask(self) -> Tensor:
        """[N, T] bool: entries that are scored: choices of the policy, and forced tokens that a term reads."""
        read = self["action_mask"]
        for name in ("imitation_mask", "self_reward_mask", "value_mask"):
            if name in self:
                read = read | self[name]
        return read

    def per_episode(self, *names: str) -> tuple[Tensor, ...]:
        """Columns with one entry per episode, however many rows it has: that of its first row in the batch.

        Returns:
            Place [N] of each row's episode among the E episodes, in the order of their ids; then the columns [E, ...].
        """
        ids, entry = self["episode"].unique(return_inverse=True)
        rows = torch.arange(len(entry))
        first = rows.new_zeros(len(ids)).scatter_reduce(0, entry, rows, "amin", include_self=False)
        return entry, *(self[name][first] for name in names)

    def with_context(self, context: str) -> Batch:
        """Return the same choices in another context, whose columns other.<context>.* become the policy's inputs."""
        prefix = f"other.{context}."
        inputs = {name.removeprefix(prefix): column for name, column in self.items() if name.startswith(prefix)}
        if not inputs:
            raise KeyError(f"the batch has no context {context!r}: add an entry to data.transforms that writes it")
        choices = {name: column for name, column in self.items() if not name.startswith(("obs.", "other."))}
        shared: dict[str, Any] = {name: inputs.pop(name) for name in ("prompt_id", "prompt_length") if name in inputs}
        return Batch({**choices, **shared, **{f"obs.{name}": column for name, column in inputs.items()}})

    def split(self, size: int) -> list[Batch]:
        """Split into consecutive batches of at most `size` rows."""
        return self.cut([min(size, self.rows - start) for start in range(0, self.rows, size)])

    def observation(self) -> dict[str, Any]:
        """The policy's inputs: the columns named obs.*, without the prefix."""
        return {name[4:]: column for name, column in self.items() if name.startswith("obs.")}


def pad_stack(rows: Sequence[Tensor], value: float | bool = 0, left: bool = False) -> Tensor:
    """Stack rows of different lengths (and trailing sizes), padded with `value` at the end or the start."""
    trailing = [max(row.shape[axis] for row in rows) for axis in range(rows[0].dim())]
    out = rows[0].new_full((len(rows), *trailing), value)
    for position, row in enumerate(rows):
        region: list[Any] = [slice(None, size) for size in row.shape]
        if left and row.dim():
            region[0] = slice(trailing[0] - row.shape[0], None)
        out[(position, *region)] = row
    return out


def concatenate_columns(columns: Sequence[Tensor | Ragged], value: float = 0, left: bool = False) -> Tensor | Ragged:
    """Concatenate one column of several batches; tensors of other widths are padded with `value`, as in `pad_stack`."""
    if isinstance(columns[0], Ragged):
        ragged = [column for column in columns if isinstance(column, Ragged)]
        starts = [sum(len(before.sizes) for before in ragged[:i]) for i in range(len(ragged))]
        index = torch.cat([column.index + start for column, start in zip(ragged, starts)])
        return Ragged(torch.cat([c.items for c in ragged]), torch.cat([c.sizes for c in ragged]), index)
    tensors = [column for column in columns if isinstance(column, Tensor)]
    trailing = [max(column.shape[axis] for column in tensors) for axis in range(1, tensors[0].dim())]
    return torch.cat([_widen(column, trailing, value, left) for column in tensors])


def _widen(column: Tensor, trailing: Sequence[int], value: float, left: bool) -> Tensor:
    if list(column.shape[1:]) == list(trailing):
        return column
    out = column.new_full((len(column), *trailing), value)
    region: list[Any] = [slice(None), *(slice(None, size) for size in column.shape[1:])]
    if left:
        region[1] = slice(trailing[0] - column.shape[1], None)
    out[tuple(region)] = column
    return out


def add_prefix(prefix: str, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors to "<prefix>/<name>", detached."""
    return {f"{prefix}/{name}": part.detach() for name, part in parts.items()}


def strip_prefix(prefix: str, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of one prefix, with the prefix removed: the inverse of `add_prefix`."""
    return {name.removeprefix(f"{prefix}/"): part for name, part in parts.items() if name.startswith(f"{prefix}/")}
