"""Drawing one choice per row from logits, and the distribution that was really drawn from."""

from __future__ import annotations

import torch
from torch import Tensor


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
    """One id per row by the inverse CDF at `uniform`, its log-probability, and the ids that truncation kept.

    q(i) = softmax(logits / temperature) renormalised over the kept ids: those at least min_p times as likely as the
    most likely one, of them the top_k most likely, and of these the smallest set of most likely ids whose mass reaches
    top_p. The inverse CDF makes the draw a function of (logits, uniform) alone.
    Source of min_p: Turning Up the Heat, 2024, section 3, arXiv:2407.01082.

    Args:
        logits: [N, V].
        uniform: [N] in (0, 1).
        greedy: take the most likely id instead of drawing.

    Returns:
        ids [N], log q(id) [N] in nats, and kept ids [N, K] filled up with -1, or None when nothing is cut off.
    """
    logits = logits.float() / temperature
    support = None
    if top_k > 0 or top_p < 1 or min_p > 0:
        order, logits = _truncated(logits, top_k, top_p, min_p)
        support = torch.where(logits > -torch.inf, order, -1)
    logprobs = logits.log_softmax(dim=-1)
    place = logprobs.argmax(dim=-1) if greedy else inverse_cdf(logprobs.exp(), uniform)
    chosen = logprobs.gather(-1, place[:, None]).squeeze(-1)
    if support is None:
        return place, chosen, None
    return order.gather(-1, place[:, None]).squeeze(-1), chosen, support


def inverse_cdf(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """The smallest index whose cumulative probability reaches `uniform`; [..., V] and [...] to [...]."""
    cumulative = probabilities.cumsum(dim=-1)
    threshold = uniform[..., None] * cumulative[..., -1:]
    return (cumulative < threshold).sum(dim=-1)


def _truncated(logits: Tensor, top_k: int, top_p: float, min_p: float) -> tuple[Tensor, Tensor]:
    """Ids from likely to unlikely [N, K], and their logits with -inf on those cut off."""
    vocabulary = logits.shape[-1]
    count = min(top_k or vocabulary, vocabulary)
    values, order = logits.topk(count, dim=-1)
    if min_p > 0:  # a ratio of probabilities, so the normalisation cancels
        values = values.masked_fill((values - values[:, :1]).exp() < min_p, -torch.inf)
    if top_p < 1:
        probabilities = values.softmax(dim=-1)
        before = probabilities.cumsum(dim=-1) - probabilities
        values = values.masked_fill(before >= top_p, -torch.inf)  # the first one has 0 before it: kept
    widest = int((values > -torch.inf).sum(dim=-1).max())
    return order[:, :widest], values[:, :widest]
