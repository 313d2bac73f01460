"""Real-valued actions as ordered bins, and the distribution over them."""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.ops.choice import draw
from mmrl.rng import Noise
from mmrl.types import Sampling


def bin_centres(bins: int, device: torch.device | None = None) -> Tensor:
    """[bins] middles of equal intervals that cover [-1, 1]: c_i = (2 i + 1) / bins - 1."""
    return (2 * torch.arange(bins, dtype=torch.float32, device=device) + 1) / bins - 1


def to_bins(values: Tensor, bins: int) -> Tensor:
    """The interval that each value lies in, int64: floor((v + 1) / 2 * bins); what lies outside goes to the edge."""
    return ((values.clamp(-1, 1) + 1) / 2 * bins).long().clamp(max=bins - 1)


def choice_logprobs(logits: Tensor, temperature: Tensor, kept: Tensor | None = None) -> Tensor:
    """[N, T, V] nats: log_softmax(logits / temperature) over all choices, or over the kept ones.

    Args:
        logits: [N, T, V].
        temperature: [N].
        kept: [N, T, K] ids that truncated sampling kept, -1 fills up; the others get (almost) no mass.
    """
    scaled = logits.float() / temperature.float()[:, None, None]
    if kept is not None:
        allowed = torch.zeros_like(scaled, dtype=torch.bool).scatter(2, kept.clamp(min=0), kept >= 0)
        # an id 0 that is only a filler must not switch a kept 0 off
        allowed[..., 0] = (kept == 0).any(dim=2)
        # the most negative number instead of -inf: p log p stays 0, gradients stay finite
        scaled = scaled.masked_fill(~allowed, torch.finfo(scaled.dtype).min)
    return scaled.log_softmax(dim=-1)


def entropy_nats(logprobs: Tensor) -> Tensor:
    """[N, T] from [N, T, V]: H = - sum_v p_v log p_v."""
    return -(logprobs.exp() * logprobs).sum(dim=-1)


def draw_bins(logits: Tensor, sampling: Sampling, noise: Noise) -> tuple[Tensor, Tensor, Tensor | None]:
    """Ids [N, T], their log-probabilities [N, T] and what truncation kept [N, T, K]; one uniform number per choice."""
    shape = logits.shape[:2]
    chosen, logprobs, kept = draw(
        logits.flatten(0, 1),
        noise.uniform(shape[1]).flatten().to(logits.device),
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        greedy=sampling.decode == "argmax",
    )
    return chosen.view(shape), logprobs.view(shape), None if kept is None else kept.view(*shape, -1)
