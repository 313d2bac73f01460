"""Prefix sharing in attention: completions attend to one copy of their prompt, in decoding and in scoring."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface

from mmrl.policies.text.packing.sequence_division import attend_divided, build_mask

NAME = "mmrl_prefix_sdpa"
"""Name of this attention in transformers. It is torch's own wherever nothing is shared."""


def set_prefix_sharing(config: Any, own: str, shares: bool) -> None:
    """Give a model with attention "sdpa" this attention, or its own; other models keep their own.

    Args:
        config: of the transformers model.
        own: attention of the model as it was loaded.
        shares: whether to use this one.
    """
    config.get_text_config(decoder=True)._attn_implementation = NAME if shares and own == "sdpa" else own


class Prefix:
    """Keys and values of U prompts, and the prompt of each of R rows.

    The rows of a prompt are batched, padded to the largest prefix group of W rows, so that one matrix product reads the
    prompt's keys once for all of its rows.
    """

    def __init__(
        self, keys: Tensor, values: Tensor, owner: Tensor | None = None, slots: tuple[Tensor, Tensor] | None = None
    ):
        self.keys, self.values = keys, values  # [U, Hk, P, D]
        self.owner: Any = owner  # [R]; a captured step has the slots alone
        # [R] the slot of a row among U * W, and [U * W] the row in a slot; any row in an empty slot
        self.slot, self.row = _assign_slots(self.owner, len(keys)) if slots is None else slots  # type: ignore[arg-type]
        self.used = False

    @property
    def length(self) -> int:
        return self.keys.shape[-2]

    def select(self, indices: Tensor) -> Prefix:
        """Select rows; prompts without a row are dropped."""
        prompts, owner = self.owner[indices].unique(return_inverse=True)
        if len(prompts) == len(self.keys):
            return Prefix(self.keys, self.values, owner)
        return Prefix(self.keys[prompts], self.values[prompts], owner)

    def times_keys(self, query: Tensor) -> Tensor:
        """Multiply queries [R, Hk, r, D] by the keys to scores [R, Hk, r, P]."""
        return self._gather(self._scatter(query) @ self.keys.transpose(-1, -2), query.shape[2])

    def times_values(self, weights: Tensor) -> Tensor:
        """Multiply weights [R, Hk, r, P] by the values to means [R, Hk, r, D]."""
        return self._gather(self._scatter(weights) @ self.values, weights.shape[2])

    def _scatter(self, rows: Tensor) -> Tensor:
        """Scatter rows [R, Hk, r, X] to slots [U, Hk, W * r, X]."""
        _, heads, r, size = rows.shape
        prompts = self.keys.shape[0]
        grouped_rows = rows.index_select(0, self.row).view(prompts, -1, heads, r * size)
        return grouped_rows.transpose(1, 2).reshape(prompts, heads, -1, size)

    def _gather(self, grouped_rows: Tensor, r: int) -> Tensor:
        """Gather rows [R, Hk, r, X] from slots [U, Hk, W * r, X]."""
        prompts, heads, _, size = grouped_rows.shape
        return grouped_rows.view(prompts, heads, -1, r, size).transpose(1, 2).flatten(0, 1).index_select(0, self.slot)


def _assign_slots(owner: Tensor, prompts: int) -> tuple[Tensor, Tensor]:
    """Assign slots so that rows of one prompt are adjacent: [R] and [U * W]."""
    order = owner.argsort(stable=True)
    counts = owner.bincount(minlength=prompts)
    width = int(counts.max())  # W
    start = counts.cumsum(0) - counts
    rank = torch.empty_like(owner)
    rank[order] = torch.arange(len(owner), device=owner.device) - start[owner[order]]
    slot = owner * width + rank
    return slot, slot.new_zeros(prompts * width).index_copy_(0, slot, torch.arange(len(owner), device=owner.device))


def prefix_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """softmax(q [K_prompt, K_own]^T * scaling) [V_prompt, V_own], or torch's attention for keys without a prefix.

    Args:
        query: [R, H, 1, D].
        key: [R, Hk, t, D] of the row's own tokens; its attribute `prefix` holds those of the prompts.
        value: [R, Hk, t, D].
        attention_mask: [R, 1, 1, P + t] bool, True where it may be attended to; None attends to all. In scoring the
            mask of packed sequences, whose attribute `head` is the number of tokens before the first completion. The
            attribute `division` says that the tokens are some of divided sequences.
    """
    division = getattr(attention_mask, "division", None)
    if division is not None:
        options = {"dropout": dropout, "scaling": scaling, **others}
        return attend_divided(prefix_attention, module, query, key, value, division, **options)
    prefix: Prefix | None = getattr(key, "prefix", None)
    head = getattr(attention_mask, "head", 0)
    # scoring: packed sequences of prompts and completions
    if prefix is None and attention_mask is not None and head:
        return _packed_attention(
            module, query, key, value, attention_mask, head, dropout=dropout, scaling=scaling, **others
        ), None
    if prefix is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **others
        )
    prefix.used = True
    # several query tokens or a position bias: copy the prompt's keys [U, Hk, P, D] to each row, [R, Hk, P + t, D]
    if query.shape[2] > 1 or others.get("position_bias") is not None:
        key, value = (torch.cat([p[prefix.owner], row], -2) for p, row in ((prefix.keys, key), (prefix.values, value)))
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **others
        )
    # one new token: the H / Hk query heads of a key head are the rows of a matrix product, [R, Hk, H / Hk, D]
    rows, heads, _, size = query.shape
    grouped = query.reshape(rows, key.shape[1], heads // key.shape[1], size) * (
        size**-0.5 if scaling is None else scaling
    )
    # [R, Hk, H / Hk, P + t] scores in float32, against the shared prompt and the row's own tokens
    scores = torch.cat([prefix.times_keys(grouped), grouped @ key.transpose(-1, -2)], -1).float()
    if attention_mask is not None:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    # [R, Hk, H / Hk, D] means, then [R, 1, H, D] as transformers expects
    weights = scores.softmax(-1).to(query.dtype)
    out = prefix.times_values(weights[..., : prefix.length]) + weights[..., prefix.length :] @ value
    return out.reshape(rows, heads, 1, size).transpose(1, 2).contiguous(), None


def _packed_attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, head: int, **options: Any
) -> Tensor:
    """Compute attention over packed sequences; that of prompts separately, often without a mask."""
    prompt_mask = None if mask.causal else mask[:, :, :head, :head]
    first = query[:, :, :head], key[:, :, :head], value[:, :, :head], prompt_mask
    second = query[:, :, head:], key, value, mask[:, :, head:]
    both = (first, second) if head < query.shape[2] else (first,)
    parts = [sdpa_attention_forward(module, *part, **options)[0] for part in both]
    return torch.cat(parts, 1)


AttentionInterface.register(NAME, prefix_attention)
AttentionMaskInterface.register(NAME, build_mask)
