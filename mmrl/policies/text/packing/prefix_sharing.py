"""Prefix sharing: whether completions of one prompt may share a packed sequence, by architecture and by measurement."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.policies.text.packing.packed_inputs import BatchTokens, annotate_mask, packed_mask
from mmrl.policies.text.packing.plan import Lengths, PackedBatch, call_tokens
from mmrl.policies.text.packing.prefix_attention import NAME

log = logging.getLogger(__name__)

MASKED_TYPES = {"full_attention", "sliding_attention"}
"""Layer types that take a mask over all pairs of tokens. Completions of others are not packed."""
EXACT = 1e-3  # tolerance in nats between log-probs of shared and unshared sequences in fp32
COMMON_FROM = 8  # calls of the network whose time a pass over the common first tokens of prompts has to save
PROMPTS, COMPLETIONS = 2, 2  # numbers of prompts, and of completions of each, that are compared


class PrefixSharing:
    """Decides by measurement whether prefix sharing is exact for a model.

    A packed sequence needs an attention mask over all pairs of tokens, which torch's attention accepts as booleans.
    Recurrences, biases by distance and masks that a model builds itself ignore it. So the first batch in which sharing
    saves time is scored with and without it, and again with the first images and the first sequence beyond the
    attention window. Weights in bf16 or fp16 are converted to fp32 for that: in bf16 a log-prob from logits of size 10
    has an error of about 0.05 nats, which may exceed the effect of a wrong mask.

    Args:
        config: of the transformers model.
        across: whether completions of different prompts may share a sequence too, which is then compared as well.
    """

    def __init__(self, config: Any, across: bool = False):
        text = config.get_text_config()
        self.kinds = set(getattr(text, "layer_types", None) or ())
        window = getattr(text, "sliding_window", None)
        self.window: int | None = window if "sliding_attention" in self.kinds or not self.kinds else None
        self.masks = text._attn_implementation == NAME and self.kinds <= MASKED_TYPES
        self.rotary = bool(getattr(text, "rope_parameters", None))
        self.hidden_size: int = text.hidden_size
        self.across = across
        if across and not self.masks:
            raise ValueError(
                "policy.pack_prompts=true needs an attention mask over all pairs of tokens, which this model does not "
                f"take (attention {text._attn_implementation!r}, layers {sorted(self.kinds) or 'of one kind'}); use "
                "policy.attention=sdpa and a model whose layers are full or sliding attention, or leave it out"
            )
        self.exact: dict[tuple[bool, bool], bool] = {}

    def mask(
        self, completion: Tensor, depth: Tensor, owner: Tensor, convert: Callable[[Tensor], Tensor] | None = None
    ) -> Any:
        """Return the attention mask in the form that the model accepts: one per kind of layer if it has two kinds.

        Args:
            completion, depth, owner: [B, L] as for `packed_mask`.
            convert: makes tensors without content of them, so that the mask has none; None computes the mask.
        """
        parts: list[Tensor | None] = [completion, depth, owner if int(owner.max()) > 0 else None]
        if convert is not None:
            parts = [part if part is None else convert(part) for part in parts]
        if self.window is None:
            return annotate_mask(packed_mask(*parts), completion, owner)  # type: ignore[arg-type]
        narrow, full = (packed_mask(*parts, window) for window in (self.window, None))  # type: ignore[arg-type]
        return {"full_attention": full, "sliding_attention": narrow} if self.kinds else narrow

    def count_common(self, ids: Tensor, attention: Tensor) -> int:
        """Count the first tokens of all prompts that are worth a pass of their own in sampling.

        0 for models in which padding may not follow them: windows and biases by distance count it, rotary positions
        do not.
        """
        if len(ids) < 2 or not self.masks or self.window is not None or not self.rotary:
            return 0
        common = count_common(ids, attention)
        saved = common * (len(ids) - 1)
        return common if saved >= COMMON_FROM * call_tokens(self.hidden_size, ids.device) else 0

    def regime(self, tokens: BatchTokens) -> tuple[bool, bool]:
        """Return the case that is verified separately: with or without images, within or beyond the window."""
        lengths = tokens.lengths
        longest = int((lengths.prompt_lengths[lengths.prompt] + lengths.choices).max())
        return tokens.has_images(), self.window is not None and longest > self.window

    def verify(self, tokens: BatchTokens, score: Callable[[list[PackedBatch]], Tensor], network: nn.Module) -> bool:
        """Whether log-probs and entropies of shared and unshared sequences agree; `score` computes them for a packing.

        Sharded weights are gathered in every call of the network, by all processes at once, and only one of them may
        have a new case: such a case is not shared until it is scored with gathered weights.
        """
        key = self.regime(tokens)
        if key not in self.exact and is_sharded(network):
            return False
        if key not in self.exact:
            reason = self._compare(_select_longest(tokens.lengths, tokens.with_images()), score, network)
            self.exact[key] = not reason
            if reason:
                log.warning(
                    "prefix sharing is off, completions are scored one by one: this model cannot share it: %s", reason
                )
        return self.exact[key]

    def _compare(self, sequences: PackedBatch, score: Callable[[list[PackedBatch]], Tensor], network: nn.Module) -> str:
        """Return the reason why prefix sharing is not exact; empty if it is."""
        try:
            with torch.no_grad(), in_fp32(network):
                alone = score([[(row,) for sequence in sequences for row in sequence]])
                try:
                    joined = [tuple(row for sequence in sequences for row in sequence)] if self.across else sequences
                    difference = float((alone - score([joined])).abs().max())
                except torch.OutOfMemoryError:
                    raise
                except (RuntimeError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
                    return f"it does not take the mask: {error}"  # an architecture's code may raise any exception
        except torch.OutOfMemoryError:
            return "too little memory to compare shared and unshared sequences in fp32"
        return "" if difference <= EXACT else f"log-probs or entropies would change by {difference:.2g} nats"


def count_common(ids: Tensor, attention: Tensor) -> int:
    """Count the first tokens that all left-padded prompts [N, P] share, without the last token of the shortest."""
    lengths = attention.sum(1, keepdim=True)
    first = ids.shape[1] - lengths + torch.arange(max(int(lengths.min()) - 1, 0), device=ids.device)
    tokens = ids.gather(1, first)
    return int((tokens == tokens[:1]).all(0).cumprod(0).sum())


def _low_precision(network: nn.Module) -> list[Tensor]:
    """List parameters and buffers in bf16 or fp16."""
    every = (*network.parameters(), *network.buffers())
    return [tensor for tensor in every if tensor.dtype in (torch.bfloat16, torch.float16)]


def is_sharded(network: nn.Module) -> bool:
    """Whether the weights are sharded and not gathered at present."""
    return any(hasattr(parameter, "to_local") for parameter in network.parameters())


@contextmanager
def in_fp32(network: nn.Module) -> Iterator[None]:
    """Context without the dropout of adapters and without autocast, with weights of low precision as fp32 copies."""
    stored = [(tensor, tensor.data) for tensor in _low_precision(network)]
    try:
        for tensor, data in stored:
            tensor.data = data.float()
        with evaluation_mode(network), torch.autocast(next(network.parameters()).device.type, enabled=False):
            yield
    finally:
        for tensor, data in stored:
            tensor.data = data


def _select_longest(lengths: Lengths, with_images: np.ndarray) -> PackedBatch:
    """Select the longest completions of the longest prompts, those with images first, as packed sequences; a single
    completion is used twice."""
    total = lengths.prompt_lengths[lengths.prompt] + lengths.choices
    order = np.lexsort((-total, ~with_images[lengths.prompt]))
    sequences = []
    for number in list(dict.fromkeys(lengths.prompt[order].tolist()))[:PROMPTS]:
        rows = [row for row in order.tolist() if lengths.prompt[row] == number][:COMPLETIONS]
        sequences.append(tuple((rows * COMPLETIONS)[:COMPLETIONS]))
    return sequences
