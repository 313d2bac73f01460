"""Frozen contexts kept in host memory with the rows, so that later passes do not read them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mmrl.core.batch import Ragged
from mmrl.policies.vla.pretrained.flow.network import ContextEncoding

KEPT = "context"
"""Column of kept keys and values [L, 2 * layers, groups, d] of the real tokens of each row."""
MEAN = "context_mean"
"""Column [N, width] of the mean of the context's features, which the critic reads."""


def check_kept(keep: bool, frozen: bool) -> None:
    """Refuse to keep contexts whose weights are trained: after an update they would be those of older weights."""
    if keep and not frozen:
        raise ValueError(
            "policy.keep_contexts=true keeps what the vision-language model has read for later passes, but "
            "policy.freeze_context=false trains that model: set policy.freeze_context=true or "
            "policy.keep_contexts=false"
        )


def keep_context(context: ContextEncoding, tokens_axis: int) -> Ragged:
    """Copy keys and values of the real tokens of N contexts to host memory.

    Args:
        context: of `FlowVLANetwork.read`.
        tokens_axis: axis of the tokens in keys and values.
    """
    mask = context.mask.bool()
    joined = torch.stack([part.movedim(tokens_axis, 1) for part in context.layers], dim=2)  # [N, L, 2 layers, ...]
    return Ragged(joined[mask].cpu(), mask.sum(dim=1).cpu())


def kept_context(kept: Ragged, tokens_axis: int) -> ContextEncoding:
    """Return the contexts of `keep_context`, without features; rows are padded at the end to the longest."""
    lengths = kept.lengths
    rows = pad_sequence(list(kept.values.split(lengths.tolist())), batch_first=True)
    mask = torch.arange(rows.shape[1])[None] < lengths[:, None]
    layers = [part.movedim(1, tokens_axis) for part in rows.unbind(dim=2)]
    return ContextEncoding(mask.to(rows.device), layers, None)


def collate_kept(observations: Sequence[Mapping[str, Any]]) -> dict[str, Tensor | Ragged]:
    """Collate the kept contexts of rows; empty where no row has one.

    Raises:
        ValueError: some rows have one and others do not.
    """
    rows = [row[KEPT] for row in observations if KEPT in row]
    if not rows:
        return {}
    if missing := len(observations) - len(rows):
        raise ValueError(
            f"{missing} of {len(observations)} rows have no kept context, such as demonstrations beside sampled rows: "
            "set policy.keep_contexts=false"
        )
    out: dict[str, Tensor | Ragged] = {KEPT: Ragged(torch.cat(rows), torch.tensor([len(row) for row in rows]))}
    if MEAN in observations[0]:
        out[MEAN] = torch.stack([row[MEAN] for row in observations])
    return out
