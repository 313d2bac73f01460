"""Multiple importance sampling for choices of an unknown policy (RL-PLUS)."""

from __future__ import annotations

from torch import Tensor


def mixture_ratio(
    logprobs: Tensor,  # [N, T] nats, with gradient
    old: Tensor,  # [N, T] nats
) -> Tensor:  # [N, T]
    """2 p / (p_old + omega) with omega = (p_old + 1) / 2, the guess at who made the choice.

    Whoever it was is taken to lie half way between the old policy and one that is sure of it, and p is compared with
    the mean of the old policy and that guess: at most 4 p / (3 p_old + 1) <= 4, however unlikely the choice was.
    Source: RL-PLUS, 2025, arXiv:2508.00222, multiple importance sampling.
    """
    p, p_old = logprobs.exp(), old.exp()
    return 2 * p / (p_old + (p_old + 1) / 2)


def unlikely(
    logprobs: Tensor,  # [N, T] nats
    power: float,
) -> Tensor:  # [N, T], no gradient
    """(1 - p)^power: choices that the policy would make anyhow count less. Source: as `mixture_ratio`."""
    return (1 - logprobs.detach().exp()).clamp(min=0) ** power
