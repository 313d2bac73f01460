"""Sampling of action tokens one after the other, and the rows that they are stored in."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.ops.choice import draw

NOTHING = -1
"""Stored in front of the tokens of some rows; it is no choice. See `avoid_length`."""


class Drawn(NamedTuple):
    """Sampled sequences of R rows."""

    ids: Tensor  # [R, T] choices
    logprobs: Tensor  # [R, T] nats
    lengths: Tensor  # [R] choices of each row, with the end
    support: Tensor | None  # [R, T, K] ids that truncated sampling can draw, -1 fills up; None when nothing is cut off


def draw_tokens(
    first: Tensor, step: Callable[[Tensor], Tensor], end: int, limit: int, sampling: Sampling, noise: Noise
) -> Drawn:
    """Sample until every row has the end, or `limit` tokens.

    Args:
        first: logits [R, V] of the first token.
        step: logits [R, V] of the next token, given the last one [R].
        end: choice that ends a row.
        limit: most tokens of a row.
        sampling: temperature and truncation; without "sample" the most likely token is taken.
        noise: one uniform number per token of each row.
    """
    # [R] rows that have ended, and their lengths
    uniform = noise.uniform(limit).to(first.device)
    over = torch.zeros(len(first), dtype=torch.bool, device=first.device)
    lengths = torch.zeros(len(first), dtype=torch.long, device=first.device)
    logits, columns = first, []
    for t in range(limit):
        columns.append(
            draw(
                logits,
                uniform[:, t],
                temperature=sampling.temperature,
                top_k=sampling.top_k,
                top_p=sampling.top_p,
                min_p=sampling.min_p,
                greedy=sampling.decode != "sample",
            )
        )
        lengths += ~over
        over = over | (columns[-1][0] == end)
        if t + 1 == limit or bool(over.all()):
            break
        logits = step(columns[-1][0])
    # [R, T, K] ids that could be drawn, padded with -1
    ids, logprobs, supports = zip(*columns)
    support = None
    if sampling.truncated:
        widest = max(part.shape[1] for part in supports)
        support = torch.stack([pad(part, (0, widest - part.shape[1]), value=-1) for part in supports], dim=1)
    return Drawn(torch.stack(ids, dim=1), torch.stack(logprobs, dim=1), lengths, support)


def avoid_length(rows: Tensor, lengths: Tensor, length: int, empty: float) -> Tensor:
    """Put `empty` in front of the rows [R, T, ...] of exactly `length` choices, so that no row has that length.

    Rollouts take a row with as many choices as the chunk has numbers for one choice per number, and mask those of
    control steps that were not executed. Here every token shapes the whole chunk.

    Returns:
        [R, T + 1, ...]; other rows get `empty` at their end.
    """
    longer = torch.cat([rows, torch.full_like(rows[:, :1], empty)], dim=1)
    return move_on(longer, lengths == length)


def take_back(rows: Tensor, shifted: Tensor) -> Tensor:
    """Move the rows [R, T, ...] where `shifted` [R] is True to the front; their first entry comes last."""
    return torch.where(shifted.view(-1, *[1] * (rows.dim() - 1)), torch.roll(rows, -1, dims=1), rows)


def move_on(rows: Tensor, shifted: Tensor) -> Tensor:
    """Undo `take_back`."""
    return torch.where(shifted.view(-1, *[1] * (rows.dim() - 1)), torch.roll(rows, 1, dims=1), rows)
