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

EXACT = 1e-3  # nats by which shared and plain lines may differ in fp32; coarser numbers get 16 of their steps
PROMPTS, ATTEMPTS = 2, 2  # that are measured


class Sharing:
    """What one model can do. Nothing here is decided by a model's name.

    A mask of all pairs says who attends to whom, so the attention has to take one: that of torch does, as booleans. A
    recurrence, a bias by distance or a mask of the model's own making does not follow from it. So the first batch in
    which sharing would pay is scored both ways, and again when pictures or a window of attention first come in.
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
            lines = _sample(reading.lengths)
            with torch.no_grad(), _steady(network):
                alone = score([[(row,) for line in lines for row in line]])
                try:
                    reason = _difference(alone, score([lines]), next(network.parameters()).dtype)
                except (RuntimeError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
                    reason = f"it does not take the mask: {error}"  # whatever code of an architecture says about it
            self.found[key] = not reason
            if reason:
                log.warning("learning reads each prompt once per attempt, since this model cannot share it: %s", reason)
        return self.found[key]


def _difference(alone: Tensor, together: Tensor, dtype: torch.dtype) -> str:
    """What is wrong with shared lines, or nothing."""
    most, found = max(EXACT, 16 * torch.finfo(dtype).eps), float((alone - together).abs().max())
    return "" if found <= most else f"log-probs would change by {found:.2g} nats"


@contextmanager
def _steady(network: nn.Module) -> Iterator[None]:
    """Without the dropout of adapters, and in the precision of the weights where they are whole."""
    modes = [(module, module.training) for module in network.modules()]
    weight = next(network.parameters())
    kind = weight.device.type
    network.eval()
    try:
        with torch.autocast(kind, enabled=torch.is_autocast_enabled(kind) and weight.dtype != torch.float32):
            yield
    finally:
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
