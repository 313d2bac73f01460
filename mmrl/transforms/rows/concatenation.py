"""Concatenate the rows of batches of several iterations, and turn a batch into plain values and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mmrl.core.batch import Batch, Ragged, concatenate_columns
from mmrl.core.columns import pad_value

if TYPE_CHECKING:
    from mmrl.policies.base import Policy

LOCAL = ("prompt_id", "episode")
"""Numbers that mean nothing beyond their batch."""


def concatenate(batches: Sequence[Batch], policy: Policy) -> Batch:
    """Concatenate batches with the same columns; `prompt_id` and `episode` are numbered on from batch to batch.

    Args:
        batches: of this run, of any iterations.
        policy: knows how observations are padded.

    Raises:
        ValueError: the batches have different columns.
    """
    batches = _number(batches)
    names = [name for name in batches[0] if not name.startswith(("obs.", "other."))]
    for batch in batches:
        if odd := {name for name in batch if not name.startswith(("obs.", "other."))} ^ set(names):
            raise ValueError(f"rows of two iterations differ in the columns {sorted(odd)} and cannot be one batch")
    out = Batch({name: concatenate_columns([batch[name] for batch in batches], pad_value(name)) for name in names})
    out |= _add_prefix("obs.", policy.concatenate([batch.observation() for batch in batches]))
    for context in dict.fromkeys(name.split(".")[1] for name in batches[0] if name.startswith("other.")):
        prefix = f"other.{context}."
        parts = [{n.removeprefix(prefix): c for n, c in batch.items() if n.startswith(prefix)} for batch in batches]
        prompts = [{name: part.pop(name) for name in ("prompt_id", "prompt_length")} for part in parts]
        out |= _add_prefix(prefix, policy.concatenate(parts))
        out |= _add_prefix(prefix, {name: concatenate_columns([each[name] for each in prompts]) for name in prompts[0]})
    return out


def to_plain(batch: Batch) -> dict[str, Any]:
    """Return the columns as tensors and dictionaries of tensors, as checkpoints hold them."""
    return {name: _ragged_parts(column) if isinstance(column, Ragged) else column for name, column in batch.items()}


def from_plain(columns: Mapping[str, Any]) -> Batch:
    """Return the batch that `to_plain` took apart."""
    return Batch(
        {name: Ragged(**column) if isinstance(column, Mapping) else column for name, column in columns.items()}
    )


def _ragged_parts(column: Ragged) -> dict[str, Tensor]:
    compact = column.compact()
    return {"items": compact.items, "sizes": compact.sizes, "index": compact.index}


def _number(batches: Sequence[Batch]) -> list[Batch]:
    """Number prompts and episodes on from batch to batch."""
    out, starts = [], dict.fromkeys(LOCAL, 0)
    for batch in batches:
        columns = {}
        for name in batch:
            last = name.rpartition(".")[2]
            if name in LOCAL or (name.startswith("other.") and last in LOCAL):
                columns[name] = batch[name] + starts[last]
        out.append(batch.with_columns(**columns))
        for name in LOCAL:
            starts[name] += int(batch[name].max()) + 1 if len(batch[name]) else 0
    return out


def _add_prefix(prefix: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}{name}": column for name, column in columns.items()}


def copy_rows(batch: Batch, index: Tensor) -> Batch:
    """Copy rows so that they share no memory with the batch, with prompts and episodes numbered from 0."""
    rows = batch.select(index)
    columns = {
        name: column.compact() if isinstance(column, Ragged) else column.clone() for name, column in rows.items()
    }
    numbers = {name: torch.unique(rows[name], return_inverse=True)[1] for name in LOCAL}
    others = {name: numbers["prompt_id"] for name in rows if name.startswith("other.") and name.endswith(".prompt_id")}
    return Batch({**columns, **numbers, **others})
