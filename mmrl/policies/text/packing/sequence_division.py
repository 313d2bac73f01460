"""Division of a sequence over processes by attention heads, as DeepSpeed-Ulysses does it.

Every process runs the network on its tokens of each sequence. In attention an all-to-all gives it all tokens of its
share of the heads, and another one returns to its tokens. So the mask of a layer is that of whole sequences: padding,
windows, and completions that share a prompt are in it as without division.
Source: DeepSpeed-Ulysses (arXiv:2309.14509), section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import sdpa_mask

from mmrl.distributed.sequence_group import SequenceGroup, get_dividing_group
from mmrl.policies.text.packing.packed_inputs import PackedInputs


@dataclass(frozen=True)
class Division:
    """How attention of a divided sequence is computed.

    Args:
        group: the processes that divide it.
        mask: over all pairs of its tokens, as torch's attention takes it; None for causal attention.
    """

    group: SequenceGroup
    mask: Tensor | None


def divide_inputs(inputs: PackedInputs, group: SequenceGroup) -> PackedInputs:
    """Return this process's tokens of a packed batch, whose mask is that of all tokens.

    A layer gets an explicit mask from here. One of padding alone is made by the model, which calls `build_mask`.

    Args:
        inputs: packed with lengths and widths that are multiples of the group's size.
        group: the processes that divide them.
    """
    if group.size == 1:
        return inputs
    mask = inputs.tensors["attention_mask"]
    if isinstance(mask, dict):
        mask = {kind: mark_divided(each, group, each.device) for kind, each in mask.items()}
    elif mask.dim() > 2:
        mask = mark_divided(mask, group, mask.device)
    tensors = {name: group.take(column) for name, column in inputs.tensors.items() if name != "attention_mask"}
    return replace(inputs, tensors={**tensors, "attention_mask": mask}, width=inputs.width // group.size)


def mark_divided(mask: Tensor | None, group: SequenceGroup, device: torch.device | str) -> Tensor:
    """Return an empty mask that carries the division to attention, also in recomputed layers (checkpointing).

    It has no entries, so that an attention function that does not know divisions fails.
    """
    marker = torch.empty(1, 1, 0, 0, dtype=torch.bool, device=device)
    marker.division = Division(group, mask)  # type: ignore[attr-defined]
    return marker


def build_mask(batch_size: int, q_length: int, kv_length: int, *args: Any, **options: Any) -> Tensor | None:
    """Build the mask of a layer from the padding of its sequences, as transformers does; of divided ones the whole.

    Args:
        batch_size: B.
        q_length: tokens that are computed, L / S of a divided sequence.
        kv_length: tokens that are attended to, L.
    """
    group = get_dividing_group()
    if group.size == 1 or options.get("attention_mask") is None or kv_length != q_length * group.size:
        return sdpa_mask(batch_size, q_length, kv_length, *args, **options)
    whole = sdpa_mask(batch_size, kv_length, kv_length, *args, **options)
    return mark_divided(whole, group, options["attention_mask"].device)


def attend_divided(
    attention: Callable[..., tuple[Tensor, None]],
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    division: Division,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute attention over all tokens for this process's share of the heads, and return that of its tokens.

    Args:
        attention: function of transformers' interface over whole sequences.
        module: layer that calls it.
        query: [B, H, L / S, D] of this process's tokens.
        key: [B, Hk, L / S, D].
        value: [B, Hk, L / S, D].
        division: of the sequences.

    Returns:
        [B, L / S, H, D], and None in place of weights.
    """
    if options.get("position_bias") is not None:
        raise NotImplementedError("a sequence is divided over processes, and its layers have a bias by distance")
    group = division.group
    repeats = count_repeats(query.shape[1], key.shape[1], group.size)
    if repeats > 1:
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    # [B, H / S, L, D] all tokens of some heads
    query, key, value = (_exchange_tokens(part, group) for part in (query, key, value))
    of_heads = SimpleNamespace(
        num_key_value_groups=query.shape[1] // key.shape[1],
        is_causal=getattr(module, "is_causal", True),
        training=module.training,
    )
    out, _ = attention(of_heads, query, key, value, division.mask, **options)
    return _exchange_heads(out, group), None


def count_repeats(heads: int, pairs: int, size: int) -> int:
    """Count how often each key-value head is repeated, so that processes get equal shares with their query heads.

    Args:
        heads: H, a multiple of the size.
        pairs: Hk, a divisor of H.
        size: S, processes.
    """
    shared = heads // pairs  # query heads of a key-value head
    return next(n for n in range(1, shared + 1) if shared % n == 0 and pairs * n % size == 0)


def _exchange_tokens(heads: Tensor, group: SequenceGroup) -> Tensor:
    """Exchange [B, H, L / S, D] of some tokens for [B, H / S, L, D] of some heads."""
    parts = group.exchange(heads.unflatten(1, (group.size, -1)).movedim(1, 0))  # [S, B, H / S, L / S, D]
    return parts.movedim(0, 3).flatten(2, 3)


def _exchange_heads(out: Tensor, group: SequenceGroup) -> Tensor:
    """Exchange [B, L, H / S, D] of some heads for [B, L / S, H, D] of some tokens."""
    parts = group.exchange(out.unflatten(1, (-1, group.size)).movedim(2, 0))  # [S, B, L / S, H / S, D]
    return parts.movedim(0, 2).flatten(2, 3)
