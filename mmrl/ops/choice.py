"""Sample one choice per row from logits, with temperature and truncation, and its log-probability."""

from __future__ import annotations

import torch
from torch import Tensor

MASKED_LOGIT = -1e4
"""Logit of an id that cannot be chosen, in every dtype. It is finite, so that entropies and gradients are; it stays so
in fp16 (largest number 65,504) also after division by a temperature of 0.3; and after division by one of 2 it is still
thousands of nats below any logit of a model, where exp gives exactly 0."""


def draw(
    logits: Tensor,
    uniform: Tensor,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    greedy: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sample one id per row by the inverse CDF at `uniform`; return its log-probability and the support.

    q(i) = softmax(logits / temperature) renormalised over the kept ids: those at least min_p times as likely as the
    most likely one, of them the top_k most likely, and of these the smallest set of most likely ids whose mass reaches
    top_p. An id with the logit -inf, which a mask cut off before, is never among them. The inverse CDF makes the
    draw a function of (logits, uniform) alone.
    Source of min_p: Turning Up the Heat, 2024, section 3, arXiv:2407.01082.

    Args:
        logits: [N, V].
        uniform: [N] in (0, 1).
        greedy: take the most likely id instead of drawing.

    Returns:
        ids [N], log q(id) [N] in nats, and kept ids [N, K] filled up with -1, or None when nothing is cut off.
    """
    logits = logits.float() / temperature
    support_ids = None
    # [N, K] kept ids, likely ones first; K is the largest number of kept ids of a row
    if top_k > 0 or top_p < 1 or min_p > 0:
        order, logits, inside = _truncate(logits, top_k, top_p, min_p)
        widest = int(inside.sum(dim=-1).max())
        order, logits = order[:, :widest], logits[:, :widest]
        support_ids = torch.where(inside[:, :widest], order, -1)
    # [N] position of the sampled id in the kept order, or the id itself where nothing is cut off
    logprobs = logits.log_softmax(dim=-1)
    place = logprobs.argmax(dim=-1) if greedy else inverse_cdf(logprobs.exp(), uniform)
    logprob = logprobs.gather(-1, place[:, None]).squeeze(-1)
    # back from positions in the kept order to ids
    if support_ids is None:
        return place, logprob, None
    return order.gather(-1, place[:, None]).squeeze(-1), logprob, support_ids


def mask_logits(logits: Tensor, words: Tensor) -> Tensor:
    """Logits with -inf at the ids whose bit is 0.

    Args:
        logits: [N, V].
        words: [N, W] int32, 32 W >= V: bit i % 32 of word i / 32 is that of id i.
    """
    bits = words[:, :, None] >> torch.arange(32, dtype=words.dtype, device=words.device) & 1
    return logits.masked_fill(bits.flatten(1)[:, : logits.shape[1]] == 0, -torch.inf)


def support(logits: Tensor, top_k: int, top_p: float, min_p: float) -> Tensor:
    """Ids that truncated sampling can draw, as in `draw`: [N, V] to [N, K], likely ones first, -1 fills up."""
    order, _, inside = _truncate(logits, top_k, top_p, min_p)
    return torch.where(inside, order, -1)


def inverse_cdf(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """The smallest index whose cumulative probability reaches `uniform`; [..., V] and [...] to [...]."""
    return first_reaching(probabilities.cumsum(dim=-1), probabilities > 0, uniform)


def first_reaching(cumulative: Tensor, possible: Tensor, uniform: Tensor) -> Tensor:
    """The smallest possible index whose cumulative probability reaches `uniform` of the whole; [..., V] to [...].

    A parallel sum in fp32 need not be monotone: a later entry may be smaller than an earlier one by rounding. The first
    entry that reaches the threshold does not depend on those after it, so a larger `uniform` never gives a smaller
    index, and an index of probability 0 is never taken.
    """
    reachable = torch.where(possible, cumulative, 0)
    threshold = uniform[..., None] * reachable.amax(dim=-1, keepdim=True)
    return (possible & (reachable >= threshold)).to(torch.uint8).argmax(dim=-1)


def _truncate(logits: Tensor, top_k: int, top_p: float, min_p: float) -> tuple[Tensor, Tensor, Tensor]:
    """Ids from likely to unlikely [N, K], their logits, masked where they are cut off, and which are not [N, K]."""
    vocabulary = logits.shape[-1]
    count = min(top_k or vocabulary, vocabulary)
    values, order = logits.topk(count, dim=-1)
    inside = values > -torch.inf  # a mask that was applied before cuts off too
    if min_p > 0:  # a ratio of probabilities, so the normalisation cancels
        inside = (values - values[:, :1]).exp() >= min_p
    if top_p < 1:
        probabilities = values.masked_fill(~inside, MASKED_LOGIT).softmax(dim=-1)
        # rounding may make the difference fall: the running maximum keeps what is inside in one piece
        before = (probabilities.cumsum(dim=-1) - probabilities).cummax(dim=-1).values
        least = torch.finfo(before.dtype).tiny  # a smaller top_p would round to 0
        inside = inside & (before < max(top_p, least))  # the first one has 0 before it: kept
    return order, values.masked_fill(~inside, MASKED_LOGIT), inside
