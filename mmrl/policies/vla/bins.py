"""Real-valued actions as ordered bins, and the distribution over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.ops.choice import MASKED_LOGIT, draw

Layout = Literal["equal", "openvla"]
"""How numbers become ids. "equal": B equal intervals of [-1, 1]. "openvla": B edges, evenly from -1 to 1, so B - 1
intervals of width 2 / (B - 1); the last id is only met by the number 1, means what the id before it means, and is
never chosen. Source of the second: Kim et al., "OpenVLA", 2024, section 3.2, arXiv:2406.09246, and its code."""


def intervals(bins: int, layout: Layout = "equal") -> int:
    """Return the number of distinct values of the ids."""
    return bins if layout == "equal" else bins - 1


def bin_centres(bins: int, device: torch.device | None = None, layout: Layout = "equal") -> Tensor:
    """Compute the centres [bins] of n equal intervals that cover [-1, 1]: c_i = (2 i + 1) / n - 1."""
    count = intervals(bins, layout)
    place = torch.arange(bins, dtype=torch.float32, device=device).clamp(max=count - 1)
    return (2 * place + 1) / count - 1


def to_bins(values: Tensor, bins: int, layout: Layout = "equal") -> Tensor:
    """Return the interval of each value, int64: floor((v + 1) / 2 * n); values outside are clipped to the edge."""
    count = intervals(bins, layout)
    return ((values.clamp(-1, 1) + 1) / 2 * count).long().clamp(max=count - 1)


def without_twins(logits: Tensor, layout: Layout) -> Tensor:
    """Mask the logits of ids that duplicate another id's value."""
    if layout == "equal":
        return logits
    twin = torch.arange(logits.shape[-1], device=logits.device) == logits.shape[-1] - 1
    return logits.masked_fill(twin, MASKED_LOGIT)


def choice_logprobs(logits: Tensor, temperature: Tensor, support_ids: Tensor | None = None) -> Tensor:
    """Compute log_softmax(logits / temperature) [N, T, V] in nats over all choices, or over the support.

    Ids that cannot be chosen have the log-probability MASKED_LOGIT at every temperature.

    Args:
        logits: [N, T, V], MASKED_LOGIT where an id is never chosen.
        temperature: [N].
        support_ids: [N, T, K] ids that truncated sampling can draw, -1 fills up; a choice with none has all.
    """
    masked = logits <= MASKED_LOGIT
    scaled = logits.float() / temperature.float()[:, None, None]
    if support_ids is not None:
        allowed = torch.zeros_like(scaled, dtype=torch.bool).scatter(2, support_ids.clamp(min=0), support_ids >= 0)
        # padding id 0 must not mask a real id 0 of the support
        allowed[..., 0] = (support_ids == 0).any(dim=2)
        masked = masked | (~allowed & (support_ids >= 0).any(dim=2, keepdim=True))
    return scaled.masked_fill(masked, MASKED_LOGIT).log_softmax(dim=-1).masked_fill(masked, MASKED_LOGIT)


def full_distribution(logits: Tensor, batch: Batch) -> dict[str, Tensor]:
    """Compute what imitation losses read of rows that truncated sampling drew; nothing where none did.

    Args:
        logits: [N, T, V], MASKED_LOGIT where an id is never chosen.
        batch: has action [N, T] and temperature [N].

    Returns:
        full_choice_logprobs [N, T, V] and full_logprobs [N, T], in nats, over all that can be chosen.
    """
    if "support_ids" not in batch:
        return {}
    every = choice_logprobs(logits, batch["temperature"])
    return {"full_choice_logprobs": every, "full_logprobs": every.gather(2, batch["action"][..., None])[..., 0]}


def entropy_nats(logprobs: Tensor) -> Tensor:
    """Compute the entropy [N, T] from log-probs [N, T, V]: H = - sum_v p_v log p_v."""
    return -(logprobs.exp() * logprobs).sum(dim=-1)


def draw_bins(logits: Tensor, sampling: Sampling, noise: Noise) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sample ids [N, T] with log-probabilities [N, T] and support [N, T, K]; one uniform number per choice."""
    shape = logits.shape[:2]
    ids, logprobs, support_ids = draw(
        logits.flatten(0, 1),
        noise.uniform(shape[1]).flatten().to(logits.device),
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        greedy=sampling.decode == "argmax",
    )
    return ids.view(shape), logprobs.view(shape), None if support_ids is None else support_ids.view(*shape, -1)


class BinChoice(NamedTuple):
    """Chosen bins, the numbers to act with, and what scoring them again needs."""

    ids: Tensor  # [N, T]
    values: Tensor  # [N, T] in [-1, 1]
    logprobs: Tensor  # [N, T] nats
    support_ids: Tensor | None  # [N, T, K]


def choose_bins(
    logits: Tensor, centres: Tensor, encode: Callable[[Tensor], Tensor], sampling: Sampling, noise: Noise
) -> BinChoice:
    """Sample bins from logits [N, T, B] and decode them.

    decode="mean" acts with the expectation over the bins and stores the bin that contains it.

    Args:
        logits: [N, T, B].
        centres: [B] the number that each bin stands for.
        encode: returns the bins that contain numbers [N, T].
        sampling: temperature, truncation and decode.
        noise: one uniform number per choice is drawn.
    """
    ids, logprobs, support_ids = draw_bins(logits, sampling, noise)
    values = centres[ids]
    if sampling.decode == "mean":
        temperature = logits.new_full((len(logits),), sampling.temperature)
        every = choice_logprobs(logits, temperature, support_ids)
        values = every.exp() @ centres
        ids = encode(values)
        logprobs = every.gather(2, ids[..., None])[..., 0]
    return BinChoice(ids, values, logprobs, support_ids)
