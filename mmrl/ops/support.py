"""Log-probability and entropy over the support of truncated sampling, whose size differs by choice."""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.ops.logprob import logprob_entropy, precision, renormalised_logprob_entropy


def support_logprob_entropy(
    logits: Tensor,  # [M, V]
    action: Tensor,  # [M] ids
    temperature: Tensor,  # [M]
    ids: Tensor,  # [S] the kept ids of all choices of a batch, end to end
    starts: Tensor,  # [M] where those of each choice begin
    sizes: Tensor,  # [M] and how many it has
    scored: Tensor | None = None,  # [M] bool; others without kept ids get 0 and cost nothing
) -> tuple[Tensor, Tensor]:  # logprobs [M] nats, entropy [M] nats
    """`logprob_entropy` over kept ids that are stored end to end; a choice with none has the whole distribution.

    One choice may keep a few ids and the next one tens of thousands. They are padded in classes of similar sizes, each
    twice as wide as the one before, so that less than twice as many numbers are computed as ids were kept.
    """
    temperature = temperature.to(precision(logits))
    if not sizes.all():
        return _with_unrestricted(logits, action, temperature, ids, starts, sizes, scored)
    ids = ids.long() if len(ids) else ids.new_zeros(1, dtype=torch.long)
    # [M] class of each choice: log2 of its number of kept ids, rounded up
    widths = sizes.clamp(min=1).double().log2().ceil().long()
    order, parts = [], []
    for width in widths.unique().tolist():
        # [m] choices of one class, and their kept ids [m, K], -1 fills up
        rows = (widths == width).nonzero().flatten()
        place = torch.arange(int(sizes[rows].max().clamp(min=1)), device=logits.device)
        at = (starts[rows][:, None] + place).clamp(max=len(ids) - 1)
        support_ids = torch.where(place < sizes[rows][:, None], ids[at], -1)
        # [m, K] logits of the kept ids alone, so that the cost depends on K and not on V
        x = logits[rows[:, None], support_ids.clamp(min=0)].to(temperature.dtype) / temperature[rows][:, None]
        parts.append(torch.stack(renormalised_logprob_entropy(x, action[rows], support_ids)))
        order.append(rows)
    # [2, M] back in the order of the choices
    logprobs, entropy = torch.cat(parts, 1)[:, torch.cat(order).argsort()]
    return logprobs, entropy


def _with_unrestricted(
    logits: Tensor,
    action: Tensor,
    temperature: Tensor,
    ids: Tensor,
    starts: Tensor,
    sizes: Tensor,
    scored: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Score choices with kept ids over these, and those without over all ids."""
    out = logits.new_zeros(2, len(logits), dtype=temperature.dtype)
    whole = (sizes == 0) if scored is None else (sizes == 0) & scored
    for mask, restricted in ((sizes > 0, True), (whole, False)):
        rows = mask.nonzero().flatten()
        if not len(rows):
            continue
        of_rows = logits[rows], action[rows], temperature[rows]
        if restricted:
            scores = support_logprob_entropy(*of_rows, ids, starts[rows], sizes[rows])
        else:
            pair = logprob_entropy(of_rows[0][:, None], of_rows[1][:, None], of_rows[2])
            scores = pair[0][:, 0], pair[1][:, 0]
        out = out.index_copy(1, rows, torch.stack(scores))
    return out[0], out[1]
