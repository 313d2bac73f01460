"""Log-probability and entropy over the support of truncated sampling, whose size differs by choice."""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.ops.logprob import precision, renormalised_logprob_entropy


def support_logprob_entropy(
    logits: Tensor,  # [M, V]
    action: Tensor,  # [M] ids
    temperature: Tensor,  # [M]
    ids: Tensor,  # [S] the kept ids of all choices of a batch, end to end
    starts: Tensor,  # [M] where those of each choice begin
    sizes: Tensor,  # [M] and how many it has
) -> tuple[Tensor, Tensor]:  # logprobs [M] nats, entropy [M] nats
    """`logprob_entropy` over kept ids that are stored end to end.

    One choice may keep a few ids and the next one tens of thousands. They are padded in classes of similar sizes, each
    twice as wide as the one before, so that less than twice as many numbers are computed as ids were kept.
    """
    temperature = temperature.to(precision(logits))
    ids = ids.long() if len(ids) else ids.new_zeros(1, dtype=torch.long)
    widths = sizes.clamp(min=1).double().log2().ceil().long()
    order, parts = [], []
    for width in widths.unique().tolist():
        rows = (widths == width).nonzero().flatten()
        place = torch.arange(int(sizes[rows].max().clamp(min=1)), device=logits.device)
        at = (starts[rows][:, None] + place).clamp(max=len(ids) - 1)
        support_ids = torch.where(place < sizes[rows][:, None], ids[at], -1)
        x = logits[rows[:, None], support_ids.clamp(min=0)].to(temperature.dtype) / temperature[rows][:, None]
        parts.append(torch.stack(renormalised_logprob_entropy(x, action[rows], support_ids)))
        order.append(rows)
    logprobs, entropy = torch.cat(parts, 1)[:, torch.cat(order).argsort()]
    return logprobs, entropy
