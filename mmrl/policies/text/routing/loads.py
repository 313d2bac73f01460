"""Loads of experts: what routers give to each expert, summed over the tokens of every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

OUTPUTS = ("router_probs", "expert_counts", "routed_lengths")
"""Parts of the policy's output: [N, experts], [N, experts] and [N]; see `sum_loads`."""


@dataclass(frozen=True)
class RowParts:
    """Which tokens of packed sequences are those of a row.

    Args:
        numbers: [B * L] the part that each token belongs to, 0 for padding.
        rows: [R] rows of the batch.
        parts: [R, 3] of each row: its prompt, first choices that it has in common with other rows, and the others.
    """

    numbers: Tensor
    rows: Tensor
    parts: Tensor

    def sum(self, values: Tensor) -> Tensor:
        """Sum values [B * L, E] of tokens over the tokens of each row, [R, E]."""
        sums = values.new_zeros(int(self.parts.max()) + 1, values.shape[1]).index_add(0, self.numbers, values)
        return sums[self.parts].sum(1)


def build_row_parts(numbering: np.ndarray, rows: Sequence[tuple[int, ...]], device: torch.device) -> RowParts:
    """Build the parts of rows.

    Args:
        numbering: [B, L] the part that each token belongs to, 0 for padding.
        rows: of each row its number and its three parts.
        device: of the result.
    """
    table = torch.tensor(rows, device=device)
    return RowParts(torch.from_numpy(numbering.flatten()).to(device), table[:, 0], table[:, 1:])


def sum_loads(logits: Sequence[Tensor], top_k: int, tokens: RowParts) -> list[Tensor]:
    """Sum what `load_balancing_loss_func` of transformers reads over the tokens of each row.

    A prompt that rows share counts in each of them, as in a batch of whole rows. The last choice of a row does not
    count, since the network does not read it.

    Args:
        logits: of each layer's router [B * L, E].
        top_k: experts of a token.
        tokens: of the rows.

    Returns:
        Of R rows: their numbers [R]; the probabilities of the experts, softmax over all of them, [R, E] with gradient;
        how often each expert is among the `top_k` most probable [R, E]; both means over the layers. And the number of
        tokens [R].
    """
    probs = [each.softmax(-1) for each in logits]
    with torch.no_grad():
        counts = [torch.zeros_like(each, dtype=torch.float32).scatter(1, each.topk(top_k).indices, 1) for each in probs]
        total = torch.stack([tokens.sum(each) for each in counts]).mean(0)
        lengths = tokens.sum(torch.ones_like(counts[0][:, :1]))[:, 0]
    return [tokens.rows, torch.stack([tokens.sum(each.float()) for each in probs]).mean(0), total, lengths]


def place_loads(loads: Sequence[Tensor], rows: int) -> dict[str, Tensor]:
    """Return `OUTPUTS` of a batch of N rows from the result of `sum_loads`."""
    index, *values = loads
    return {
        name: value.new_zeros(rows, *value.shape[1:]).index_copy(0, index, value)
        for name, value in zip(OUTPUTS, values, strict=True)
    }
