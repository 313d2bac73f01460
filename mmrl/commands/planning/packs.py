"""Pack the batches of a plan as a run does, with attention masks that have no content."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from mmrl.commands.planning.live_bytes import LiveBytes
from mmrl.core.batch import Batch
from mmrl.policies.text.packing import plan as packing
from mmrl.policies.text.packing.packed_inputs import PackedInputs
from mmrl.policies.text.policy import TextPolicy


@dataclass(frozen=True)
class PlannedPack:
    """Inputs of a packed batch, and the bytes of the attention mask of completions that share a sequence."""

    inputs: PackedInputs
    mask: int = 0
    mask_peak: int = 0  # while it is made


def plan_packs(
    policy: TextPolicy, batch: Batch, device: torch.device, mode: FakeTensorMode | None
) -> Iterator[PlannedPack]:
    """Pack a batch as the policy does, without comparing shared and unshared sequences.

    Masks over pairs of tokens have no content: those of long sequences would not fit into memory.

    Args:
        policy: with fake weights.
        batch: of rows.
        device: that is planned for, which decides the packing.
        mode: of the fake weights; None for real ones, whose masks are computed.
    """
    tokens = policy.extract_tokens(batch)
    cost_model = packing.PackingCost.of_model(policy.model.config.get_text_config(), device)
    most, sharing = packing.max_packed_tokens(policy.hidden_size, device), policy.prefix_sharing
    options = (policy.one_pass, most, sharing.across, policy.takes_padding)
    for packed in packing.plan_packing(tokens.lengths, cost_model, sharing.masks, *options):
        live = LiveBytes(policy)

        def build_mask(*parts: Tensor, live: LiveBytes = live) -> Any:
            with live:
                return sharing.mask(*parts, convert=None if mode is None else mode.from_tensor)

        inputs = tokens.pack(packed, build_mask, policy.sequence_group.size)
        if not shares_prefix(inputs):
            inputs.tensors["attention_mask"] = without_content(inputs.tensors["attention_mask"], mode)
        yield PlannedPack(inputs, live.live, live.peak)


def without_content(attention: Tensor, mode: FakeTensorMode | None) -> Tensor:
    """Return the mask [B, L] of padded tokens without content, so that what a model makes of it has none either.

    One without padding stays as it is, because a model makes no mask of it.
    """
    return attention if mode is None or bool(attention.all()) else mode.from_tensor(attention)


def shares_prefix(inputs: PackedInputs) -> bool:
    """Whether completions share a sequence, under an explicit mask."""
    mask = inputs.tensors["attention_mask"]
    return mask.dim() > 2 if isinstance(mask, Tensor) else True


def describe_mask(inputs: PackedInputs) -> tuple[bool, bool]:
    """Return whether completions share a sequence, and whether sequences are padded, so that a model makes a mask."""
    if shares_prefix(inputs):
        return True, False
    attention = inputs.tensors["attention_mask"]
    return False, isinstance(attention, FakeTensor) or not bool(attention.all())
