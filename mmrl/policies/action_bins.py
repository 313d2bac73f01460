"""Real-valued actions as ordered bins, and the one distribution code that drawing and scoring share."""

from __future__ import annotations

import torch
from torch import Tensor

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


def keep(logits: Tensor, sampling: Sampling) -> Tensor | None:
    """[N, T, K] ids of the choices that top_k and top_p leave, likeliest first, -1 fills up; None when all stay.

    top_p keeps the smallest set with at least that mass, so the likeliest choice always stays.
    """
    if not sampling.truncated:
        return None
    ordered, ids = (logits.float() / sampling.temperature).softmax(dim=-1).sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(dim=-1) - ordered
    stays = before < sampling.top_p
    if sampling.top_k:
        stays[..., sampling.top_k :] = False
    size = int(stays.sum(dim=-1).max())
    return torch.where(stays, ids, -1)[..., :size]


def draw(logprobs: Tensor, noise: Noise) -> Tensor:
    """[N, T] ids by the inverse CDF, one uniform number per choice: the first id whose cumulated mass exceeds u."""
    choices, size = logprobs.shape[1:]
    mass = logprobs.exp().cumsum(dim=-1)
    level = noise.uniform(choices).to(mass) * mass[..., -1]
    return (mass <= level[..., None]).sum(dim=-1).clamp(max=size - 1)
