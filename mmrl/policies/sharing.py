"""Whether attempts at one prompt may share a line: what the architecture takes, and a measurement on its own rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mmrl.policies.layout import Lengths, Sheet
from mmrl.policies.prefix_attention import NAME
from mmrl.policies.reading import Reading, headed, visible

log = logging.getLogger(__name__)

EXACT = 1e-3  # nats by which log-probs of shared and plain lines may differ in fp32, in which they are compared
PROMPTS, ATTEMPTS = 2, 2  # that are measured


class Sharing:
    """What one model can do. Nothing here is decided by a model's name.

    A mask of all pairs says who attends to whom, so the attention has to take one: that of torch does, as booleans. A
    recurrence, a bias by distance or a mask of the model's own making does not follow from it. So the first batch in
    which sharing would pay is scored both ways, and again when pictures or a window of attention first come in.
    Weights in bf16 or fp16 are converted to fp32 for that: in bf16 a log-prob from logits of size 10 is off by about
    0.05 nats, and a wrong mask can change it by as little.
    """

    def __init__(self, config: Any):
        text = config.get_text_config()
        self.kinds = set(getattr(text, "layer_types", None) or ())
        window = getattr(text, "sliding_window", None)
        self.window: int | None = window if "sliding_attention" in self.kinds or not self.kinds else None
        self.masks = text._attn_implementation == NAME and self.kinds <= {"full_attention", "sliding_attention"}
        self.found: dict[tuple[bool, bool], bool] = {}

    def mask(self, attempt: Tensor, depth: Tensor) -> Any:
        """The attention mask in the form that the model takes: one per kind of layer where it has two."""
        if self.window is None:
            return headed(visible(attempt, depth), attempt)
        narrow = visible(attempt, depth, self.window)
        return {"full_attention": visible(attempt, depth), "sliding_attention": narrow} if self.kinds else narrow

    def regime(self, reading: Reading) -> tuple[bool, bool]:
        """What has to be measured for itself: with or without pictures, within or beyond the window."""
        lengths = reading.lengths
        longest = int((lengths.before[lengths.prompt] + lengths.choices).max())
        return reading.pictured(), self.window is not None and longest > self.window

    def measured(self, reading: Reading, score: Callable[[list[Sheet]], Tensor], network: nn.Module) -> bool:
        """Whether lines that are shared say the same as lines that are not; `score` gives their log-probs in turn."""
        key = self.regime(reading)
        if key not in self.found:
            reason = _sharded(network) or self._compared(_sample(reading.lengths), score, network)
            self.found[key] = not reason
            if reason:
                log.warning("learning reads each prompt once per attempt, since this model cannot share it: %s", reason)
        return self.found[key]

    def _compared(self, lines: Sheet, score: Callable[[list[Sheet]], Tensor], network: nn.Module) -> str:
        """What is wrong with shared lines, or nothing."""
        try:
            with torch.no_grad(), _in_fp32(network):
                alone = score([[(row,) for line in lines for row in line]])
                try:
                    found = float((alone - score([lines])).abs().max())
                except torch.OutOfMemoryError:
                    raise
                except (RuntimeError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
                    return f"it does not take the mask: {error}"  # whatever code of an architecture says about it
        except torch.OutOfMemoryError:
            return "there is no memory left to compare the two in fp32"
        return "" if found <= EXACT else f"log-probs would change by {found:.2g} nats"


def _low(network: nn.Module) -> list[Tensor]:
    """Parameters and buffers in bf16 or fp16."""
    every = (*network.parameters(), *network.buffers())
    return [tensor for tensor in every if tensor.dtype in (torch.bfloat16, torch.float16)]


def _sharded(network: nn.Module) -> str:
    """Why the two cannot be compared, or nothing."""
    if not any(hasattr(tensor, "to_local") for tensor in _low(network)):
        return ""
    return (
        "its sharded weights are not fp32, and rounding hides a wrong mask; policy.dtype=float32 lets them be compared"
    )


@contextmanager
def _in_fp32(network: nn.Module) -> Iterator[None]:
    """Without the dropout of adapters and without autocast, weights of lower precision as fp32 copies of theirs."""
    modes = [(module, module.training) for module in network.modules()]
    stored = [(tensor, tensor.data) for tensor in _low(network)]
    network.eval()
    try:
        for tensor, data in stored:
            tensor.data = data.float()
        with torch.autocast(next(network.parameters()).device.type, enabled=False):
            yield
    finally:
        for tensor, data in stored:
            tensor.data = data
        for module, training in modes:
            module.training = training


def _sample(lengths: Lengths) -> Sheet:
    """The longest attempts at the prompts with the longest ones; one that is alone stands for two."""
    total = lengths.before[lengths.prompt] + lengths.choices
    order = np.argsort(-total, kind="stable")
    lines = []
    for number in list(dict.fromkeys(lengths.prompt[order].tolist()))[:PROMPTS]:
        rows = [row for row in order.tolist() if lengths.prompt[row] == number][:ATTEMPTS]
        lines.append(tuple((rows * ATTEMPTS)[:ATTEMPTS]))
    return lines
