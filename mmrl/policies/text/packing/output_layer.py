"""Output layer of a causal language model: the logits of a pass all at once, or chunk by chunk."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from mmrl.core.errors import check_at_least
from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.ops.chunked_layer import Score, apply_in_chunks
from mmrl.policies.text.packing.packed_inputs import PackedInputs
from mmrl.policies.text.packing.prefix_sharing import is_sharded

log = logging.getLogger(__name__)

MAX_LOGITS = 1 << 26
"""Logits of a pass that are computed at once: 256 MiB in fp32, and their gradient as much again. Chunks cost time, and
they round sums of gradients in another order: passes whose logits fit easily keep the numbers that they always had."""
CHUNK_ROWS = 256
"""Tokens of a chunk: enough that reading the layer's weight does not take longer than multiplying by it."""
LARGE_LOGIT = 100.0
"""Largest logit of the comparison: far beyond the caps of models that cap their logits, at 30 and 50."""


class OutputLayer:
    """Decides how many tokens the output layer is applied to at once, and by measurement whether it may be.

    In chunks, the model runs up to its output layer, which is then applied to the hidden states it was given. So the
    model's logits must be the outputs of that layer. They are not where a model caps or scales them: its logits are
    computed all at once.

    Args:
        max_logits: logits, tokens times vocabulary, that exist at once.
    """

    def __init__(self, max_logits: int):
        check_at_least(1, "policy", max_logits=max_logits)
        self.max_logits = max_logits
        self._exact: bool | None = None

    def __deepcopy__(self, memo: Any) -> OutputLayer:
        return self  # copies of a model have the same layers: one is measured for all

    def score(
        self, model: Any, inputs: PackedInputs, score: Score, ids: Sequence[int], **options: Any
    ) -> tuple[Sequence[Tensor], Any]:
        """Run the model on a packed batch, and score the logits of its last `width` tokens of each sequence.

        Args:
            model: of transformers, with or without adapters.
            inputs: of B sequences.
            score: from logits [m, V] of the tokens `at`, of B * width, to tensors [m, ...].
            ids: a few ids that stand for text, for the comparison.
            options: further arguments of the model.

        Returns:
            The tensors of `score` for all tokens, and the model's output.
        """
        arguments = {**inputs.tensors, "use_cache": False, "logits_to_keep": inputs.width, **options}
        rows = self.rows_of_chunk(model, len(inputs.tensors["input_ids"]) * inputs.width, ids)
        if rows is None:
            out = model(**arguments)
            return score(out.logits[:, -inputs.width :].flatten(0, 1), slice(None)), out
        layer = model.get_output_embeddings()
        with capture_hidden(layer) as captured:
            out = model(**arguments)
        return apply_in_chunks(layer, captured[0][:, -inputs.width :].flatten(0, 1), score, rows), out

    def rows_of_chunk(self, model: Any, tokens: int, ids: Sequence[int]) -> int | None:
        """Return the tokens of a chunk for a pass that scores `tokens`; None for all of them at once.

        Args:
            model, ids: as of `score`.
            tokens: that are scored.
        """
        vocabulary = model.config.get_text_config().vocab_size
        if tokens * vocabulary <= self.max_logits or not self.verify(model, ids):
            return None
        if is_sharded(model.get_output_embeddings()):  # gathered only while the layer itself is called
            return None
        return max(min(CHUNK_ROWS, self.max_logits // vocabulary), 1)

    def verify(self, model: Any, ids: Sequence[int]) -> bool:
        """Whether the model's logits are the outputs of its output layer, found out once.

        Sharded weights are verified when they are gathered first (`Policy.measure_network`).
        """
        if self._exact is None and is_sharded(model):
            return False
        if self._exact is None:
            reason = _compare(model, torch.tensor([list(ids)], device=next(model.parameters()).device))
            self._exact = not reason
            if reason:
                log.warning("policy.max_logits has no effect, all logits of a pass are computed at once: %s", reason)
        return self._exact


@contextmanager
def capture_hidden(layer: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the hidden states that a layer is given inside the context, and compute it for one token only."""
    captured: list[Tensor] = []

    def keep(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        captured.append(arguments[0])
        return (arguments[0][:1, -1:], *arguments[1:])

    handle = layer.register_forward_pre_hook(keep)
    try:
        yield captured
    finally:
        handle.remove()


def _compare(model: Any, ids: Tensor) -> str:
    """Return why the model's logits are not the outputs of its output layer; empty if they are."""
    layer, kind = model.get_output_embeddings(), type(model).__name__
    if layer is None:
        return f"{kind} names no output layer"
    if any(isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0 for part in layer.modules()):
        return "the adapter of the output layer has dropout (policy.lora.lora_dropout), which would be drawn again"
    outputs: list[tuple[Tensor, Tensor]] = []

    def enlarge(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden = arguments[0]
        return (hidden * (LARGE_LOGIT / layer.forward(hidden).abs().amax().clamp(min=1e-6)), *arguments[1:])

    def keep(_: nn.Module, arguments: Any, output: Tensor) -> None:
        outputs.append((output, output.clone()))  # a model may change its logits in place

    handles = [layer.register_forward_pre_hook(enlarge), layer.register_forward_hook(keep)]
    try:
        with torch.no_grad(), evaluation_mode(model):
            logits = model(input_ids=ids, use_cache=False).logits
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        return f"{kind} cannot be compared on text alone: {error}"  # an architecture's code may raise any exception
    finally:
        for handle in handles:
            handle.remove()
    if len(outputs) != 1:
        return f"{kind} calls its output layer {len(outputs)} times"
    output, values = outputs[0]
    if isinstance(logits, FakeTensor):  # without values; logits that are changed are another tensor
        same = logits.untyped_storage()._cdata == output.untyped_storage()._cdata
    else:
        same = torch.equal(logits.float(), values.float())
    return "" if same else f"{kind} caps or scales the outputs of its output layer"
